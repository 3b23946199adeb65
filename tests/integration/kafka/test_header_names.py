"""Header names that are no UTF-8: a client may send them, and the library we read with raises at them for ever."""

import json

import pytest
from aiokafka.consumer import fetcher

from tests.integration.kafka.bytes_producer import produce_bytes
from tests.support import lines, samples
from tests.support.kafka import committed, consume
from worker.adapters.kafka.header_names import AnyNamesRecords
from worker.app import ensure_topics
from worker.core.outcome import Outcome
from worker.embedded.broker import Broker

NAME = b"\xff\xfename"
PARTITIONS = 3

pytestmark = pytest.mark.kafka


async def test_a_record_whose_header_name_is_no_text_ends_like_any_other(
    apache_kafka: Broker, postgres_dsn: str, topics_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind of aiokafka#744: one record that cannot be read kept its partition from ever being read on."""
    monkeypatch.setattr(fetcher, "MemoryRecords", fetcher.MemoryRecords)  # put back afterwards
    settings = lines.settings_of(apache_kafka, postgres_dsn, topics_prefix, kafka={"partitions": PARTITIONS})
    await ensure_topics(settings)
    answers = [json.dumps(samples.event_of(answer)) for answer in lines.answers(60)]
    records = [(number % PARTITIONS, value, NAME if number % 7 == 5 else b"") for number, value in enumerate(answers)]
    records.insert(40, (1, "oops", NAME))
    produce_bytes(apache_kafka, settings.kafka.answers_topic, records)

    summary = await lines.run_until_drained(settings)

    assert fetcher.MemoryRecords is AnyNamesRecords
    assert summary.outcomes == {Outcome.ATTRIBUTED: 60, Outcome.DEAD_LETTER: 1}
    [letter] = await consume(apache_kafka, settings.kafka.dead_letter_topic, 1)
    assert (letter.key, letter.value) == (b"k", b"oops")
    assert letter.headers[0] == ("\ufffd\ufffdname", b"1")
    ends = [
        await committed(apache_kafka, settings.kafka.group_id, settings.kafka.answers_topic, partition)
        for partition in range(PARTITIONS)
    ]
    assert ends == [20, 21, 20]

    produce_bytes(apache_kafka, settings.kafka.answers_topic, [(2, answers[0], NAME), (2, answers[1], b"")])
    summary = await lines.run_until_drained(settings)
    assert summary.outcomes == {Outcome.DUPLICATE: 2}
