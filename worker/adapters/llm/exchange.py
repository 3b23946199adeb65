"""One call of either SDK: its deadline, its failures in our words, and what a refused parameter teaches."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx2
from pydantic import SecretStr

from worker.adapters.llm.bodies import UnreadableBodyError, body_text, json_object, member
from worker.adapters.llm.failures import (
    failed_connection,
    failed_status,
    failed_within_200,
    refusal_message,
    too_late,
    unreadable,
)
from worker.adapters.llm.profiles import Capability, CapabilityProfile, lesson_of
from worker.core.calls import CallProblem
from worker.llm_ports import CallFailedError, Reply
from worker.telemetry import log

KEY_SHOWN = "[api key]"

Send = Callable[[CapabilityProfile], Awaitable[httpx2.Response]]
"""Makes one call through an SDK, with the parameters that the profile allows."""


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """An SDK's own classes: an error status with its `response`, and everything without a response."""

    status: type[Exception]
    connection: type[Exception]


class Exchange:
    """Calls of one model; a parameter that was refused once is left out from then on, in this process."""

    def __init__(
        self,
        profile: CapabilityProfile,
        *,
        model: str,
        api_key: SecretStr,
        errors: SdkErrors,
        completion_members: frozenset[str],
    ) -> None:
        self.profile = profile
        self._model = model
        self._api_key = api_key
        self._errors = errors
        self._completion_members = completion_members

    async def complete(self, send: Send, timeout_s: float) -> Reply:
        """Raises CallFailedError at the latest after `timeout_s`, whatever the provider does."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._learning(send)
        except TimeoutError:
            raise too_late(timeout_s) from None

    async def _learning(self, send: Send) -> Reply:
        """Sends again after a refusal that names a parameter we can do without; each parameter once."""
        learnt: set[Capability] = set()
        while True:
            # Calls beside this one may learn, too: what matters is what this one sent.
            profile = self.profile
            try:
                return await self._once(send, profile)
            except CallFailedError as error:
                lesson = lesson_of(profile, _refusal(error.problem))
                if lesson is None or lesson.capability in learnt:
                    raise
            learnt.add(lesson.capability)
            self.profile = lesson.applied_to(self.profile)
            log.warning(
                "provider.parameter_learnt", model=self._model, parameter=lesson.capability, taken=lesson.has_it
            )

    async def _once(self, send: Send, profile: CapabilityProfile) -> Reply:
        response = await self._response(send, profile)
        text, headers = body_text(response.content), dict(response.headers)
        if response.is_success:
            return self._reply(text, headers)
        # Azure answers with whole completions, usage included, under a 400 (experiential#967).
        if self._is_completion(text):
            return Reply(raw=text, headers=headers)
        raise failed_status(response.status_code, headers, self._without_key(text))

    async def _response(self, send: Send, profile: CapabilityProfile) -> httpx2.Response:
        """Of whatever status: what the SDK raises for an error quotes its body, and stays out of our tracebacks."""
        try:
            return await send(profile)
        except self._errors.status as error:
            failed: httpx2.Response = getattr(error, "response")  # noqa: B009  # both SDKs' status errors have it
            return failed
        except self._errors.connection as error:
            raise failed_connection(error) from None

    def _reply(self, text: str, headers: Mapping[str, str]) -> Reply:
        try:
            body = json_object(text)
        except UnreadableBodyError as error:
            raise unreadable(error, headers, self._without_key(text)) from None
        if member(body, "error") and self._completion_members.isdisjoint(body):
            raise failed_within_200(headers, body, self._without_key(text))
        return Reply(raw=text, headers=headers)

    def _is_completion(self, text: str) -> bool:
        try:
            return not self._completion_members.isdisjoint(json_object(text))
        except UnreadableBodyError:
            return False

    def _without_key(self, text: str) -> str:
        """Some servers quote the key that they refuse."""
        return text.replace(self._api_key.get_secret_value(), KEY_SHOWN)


def _refusal(problem: CallProblem) -> str:
    return refusal_message(problem.raw or "") if problem.status == httpx2.codes.BAD_REQUEST else ""
