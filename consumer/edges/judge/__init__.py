"""Judge providers: one file each, on what they share in `base`.

`headers` are those of the client that `provider` is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import httpx

from consumer.edges.judge.anthropic import AnthropicProvider
from consumer.edges.judge.base import Dialect, HttpProvider
from consumer.edges.judge.gemini import GeminiProvider
from consumer.edges.judge.openai import OpenAIProvider
from consumer.ports import Provider

__all__ = ["Dialect", "ProviderType", "headers", "provider"]

ProviderType = Literal["openai", "gemini", "anthropic"]

_PROVIDERS: Mapping[ProviderType, type[HttpProvider]] = {
    "openai": OpenAIProvider,
    "gemini": GeminiProvider,
    "anthropic": AnthropicProvider,
}


def headers(kind: ProviderType, api_key: str) -> dict[str, str]:
    """How this API is told the key, where there is one, and its version, where it wants one."""
    return _PROVIDERS[kind].headers(api_key)


def provider(
    kind: ProviderType,
    *,
    client: httpx.AsyncClient,
    name: str,
    model: str,
    max_output_tokens: int,
    dialect: Dialect = "json_schema",
) -> Provider:
    """One model behind this API. `client` has the base URL, `headers` and the time limit of a call.

    `dialect` is how the verdict's shape is asked for, to begin with.
    """
    return _PROVIDERS[kind](
        client=client,
        name=name,
        model=model,
        max_output_tokens=max_output_tokens,
        dialect=dialect,
    )
