"""`attribution-worker erase`: the texts of one answer or of one owner, gone; the money, as it was."""

import asyncio
from typing import Annotated

import typer

from worker import app
from worker.cli.terminal import console
from worker.core.model import AnswerId, AnswerKey, OwnerId, TenantId
from worker.settings import load_settings


def erase(
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant of the search engine.")],
    answer_id: Annotated[str | None, typer.Option("--answer-id", help="Erase the texts of this answer.")] = None,
    owner_id: Annotated[str | None, typer.Option("--owner", help="Erase what is quoted from this owner.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Replace the texts of one answer, or of one owner, by their hashes; shares and money stay and still `verify`.

    Key points, quotes, query and answer become SHA-256; titles, raw model responses, cached judgements and the bytes of
    dead letters go, and those dead letters are closed: they cannot be replayed any more. Of an owner: the quotes and
    titles of its sources, and what holds them among other things. Run it as the owner of the tables.

    Not reached: the Kafka topics (their retention ends them), messages still in the outbox, backups.

    Example: `attribution-worker erase --tenant default --answer-id a-1`
    """
    if (answer_id is None) == (owner_id is None):
        raise typer.BadParameter("say which: --answer-id or --owner", param_hint="--answer-id")
    if not yes:
        typer.confirm("The texts cannot be brought back. Erase them?", abort=True)
    erased = asyncio.run(_erase(TenantId(tenant), answer_id, owner_id))
    console.print(f"Erased the texts of {erased.attributions} attributions and {erased.dead_letters} dead letters.")
    if not erased.attributions and not erased.dead_letters:
        raise typer.Exit(1)


async def _erase(tenant: TenantId, answer_id: str | None, owner_id: str | None) -> app.Erased:
    async with app.open_erasure(load_settings()) as erasure:
        if answer_id is not None:
            return await erasure.erase_answer(AnswerKey(tenant, AnswerId(answer_id)))
        return await erasure.erase_owner(tenant, OwnerId(owner_id or ""))
