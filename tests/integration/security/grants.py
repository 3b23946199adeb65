"""ACLs for tests: what a principal may do, granted one by one."""

from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest

from worker.adapters.kafka.connection import connection_options
from worker.settings import KafkaSettings

RESOURCES = {"topic": 2, "group": 3}
OPERATIONS = {"read": 3, "write": 4}
LITERAL = ALLOW = 3


class Grant(NamedTuple):
    """One right on one resource."""

    operation: str
    resource: str
    name: str


def rights_of_a_worker(kafka: KafkaSettings) -> Sequence[Grant]:
    """All that a worker needs."""
    return (
        Grant("read", "topic", kafka.answers_topic),
        Grant("read", "group", kafka.group_id),
        Grant("write", "topic", kafka.attributions_topic),
        Grant("write", "topic", kafka.dead_letter_topic),
    )


async def grant(admin: KafkaSettings, principal: str, grants: Sequence[Grant]) -> None:
    client = AIOKafkaAdminClient(**connection_options(admin))
    await client.start()
    try:
        for operation, resource, name in grants:
            asked = CreateAclsRequest(
                RESOURCES[resource], name, LITERAL, f"User:{principal}", "*", OPERATIONS[operation], ALLOW
            )
            response = await client._send_request(asked)
            assert [code for code, _ in response.creation_responses] == [0]
    finally:
        await client.close()
