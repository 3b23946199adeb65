"""Messages out to Kafka, acknowledged by all in-sync replicas: `Publisher` over aiokafka."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from worker.adapters.kafka.connection import close_in_time, connection_options, start_client, translated_errors
from worker.core.records import OutboundMessage
from worker.errors import FatalError, UnavailableError
from worker.settings import KafkaSettings

LOOK_TIMEOUT_S = 2.0
"""How long the broker may take to say which topics it knows, after a failure."""

BATCH_BYTES = 256 * 2**10
"""Gathered into one record batch per partition: at aiokafka's 16 KiB a few attributions would fill it."""


class KafkaPublisher(AbstractAsyncContextManager["KafkaPublisher"]):
    """Connects at the first message. After a failure the client is replaced: some of its failures last for ever."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """One round: all are sent, in order, then all awaited, for at most one request timeout."""
        if not messages:
            return
        try:
            with translated_errors("publishing"):
                await self._publish(messages)
        except asyncio.CancelledError:
            # Perhaps while it connected: a client half started takes messages, and never sends them.
            await self.stop()
            raise
        except UnavailableError as error:
            try:
                unknown = await self._unknown_topics(messages)
            finally:
                await self.stop()
            if unknown:
                raise FatalError(f"no such topic: {', '.join(unknown)}; run `attribution-worker topics`") from error
            raise

    async def _publish(self, messages: Sequence[OutboundMessage]) -> None:
        sent: list[asyncio.Future[object]] = []
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                producer = await self._connected()
                for message in messages:
                    sent += [await self._send(producer, message)]
                await asyncio.wait(sent)
        finally:
            for acknowledgement in sent:
                acknowledgement.cancel()
        failures = [error for acknowledgement in sent if (error := acknowledgement.exception()) is not None]
        if failures:
            _raise_failure(failures[0])

    async def _unknown_topics(self, messages: Sequence[OutboundMessage]) -> list[str]:
        """A topic that does not exist is waited for until the time is up, without a word: so the broker is asked.

        None where it does not answer: what the client knows may be from before it came to these topics.
        """
        if self._client is None or (node := self._client.client.get_random_node()) is None:
            return []
        request = MetadataRequest(sorted({message.topic for message in messages}), allow_auto_topic_creation=False)
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                response = await self._client.client.send(node, request)
        except (KafkaError, OSError, TimeoutError):
            return []
        return [name for code, name, *_ in response.topics if for_code(code) is UnknownTopicOrPartitionError]

    async def stop(self) -> None:
        producer, self._client = self._client, None
        if producer is None:
            return
        # Not its own stop(), which would wait for the broker to take what is left in it, and nobody waits for that.
        producer._closed = True  # noqa: SLF001  # as stop() does
        await close_in_time(producer._sender.close(), "producer")  # noqa: SLF001  # as stop() does
        await close_in_time(producer.client.close(), "producer's connections")

    async def _connected(self) -> AIOKafkaProducer:
        if self._client is None:
            settings = self._settings
            self._client = AIOKafkaProducer(
                **connection_options(settings),
                acks="all",
                enable_idempotence=settings.enable_idempotence,
                compression_type=settings.compression_type,
                max_request_size=settings.message_bytes_max,
                max_batch_size=min(BATCH_BYTES, settings.message_bytes_max),
            )
            await start_client(self._client, settings)
        return self._client

    async def _send(self, producer: AIOKafkaProducer, message: OutboundMessage) -> "asyncio.Future[object]":
        try:
            acknowledgement: asyncio.Future[object] = await producer.send(
                message.topic, message.value, key=message.key, headers=list(message.headers)
            )
        except MessageSizeTooLargeError as error:
            raise FatalError(f"a message to {message.topic} is above kafka.message_bytes_max") from error
        return acknowledgement


def _raise_failure(error: BaseException) -> None:
    if isinstance(error, CorruptRecordException):
        # Of what is read it means a loss. What is sent was spoilt on its way, and may arrive whole the next time.
        raise UnavailableError(f"publishing: a batch did not arrive whole: {error}") from error
    raise error
