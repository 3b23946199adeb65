"""Providers opened and closed: one client per process and model, for as long as it is needed."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from worker.adapters.llm.http import http_client, silence_libraries
from worker.adapters.llm.tokens import count_tokens, load_tokenizer
from worker.errors import FatalError
from worker.llm_ports import Provider

if TYPE_CHECKING:
    from worker.adapters.llm.anthropic import AnthropicProvider
    from worker.adapters.llm.openai import OpenAIProvider

PROVIDERS = ("openai", "anthropic")
HEADER_VALUE = re.compile(r"[\x21-\x7e]+")


@asynccontextmanager
async def open_provider(
    name: str, model: str, api_key: SecretStr, base_url: str | None, connections_max: int
) -> AsyncIterator[Provider]:
    """A provider by its name, `openai` or `anthropic`; its connections end with the context.

    `base_url` None is the provider's own. `connections_max` must not be less than the calls that the limiter lets be in
    flight, or calls wait for a connection until they time out.

    Raises:
        FatalError: no provider has this name, or the key cannot be one.
    """
    if name not in PROVIDERS:
        raise FatalError(f"no LLM provider is called {name!r}; there are: {', '.join(PROVIDERS)}")
    if not HEADER_VALUE.fullmatch(api_key.get_secret_value()):
        raise FatalError(f"the API key of {name} is empty, or holds spaces or characters that no key has")
    silence_libraries()
    await asyncio.to_thread(load_tokenizer)
    provider = await asyncio.to_thread(_provider_named, name)
    async with http_client(connections_max=connections_max) as client:
        yield provider(client, model=model, api_key=api_key, base_url=base_url, count_tokens=count_tokens)


def _provider_named(name: str) -> "type[OpenAIProvider | AnthropicProvider]":
    """Imported only where it is asked: an SDK takes a second, which nobody is to wait for who does not use it."""
    if name == "openai":
        from worker.adapters.llm.openai import OpenAIProvider  # noqa: PLC0415  # see above

        return OpenAIProvider
    from worker.adapters.llm.anthropic import AnthropicProvider  # noqa: PLC0415  # see above

    return AnthropicProvider
