"""The web searches that a model made, out of its call's metadata: Google's grounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# As its API spells them, and as its Python libraries do.
_GROUNDING = ("grounding_metadata", "groundingMetadata")
_QUERIES = ("web_search_queries", "webSearchQueries")
_CHUNKS = ("grounding_chunks", "groundingChunks")
_CONTEXT = ("url_context_metadata", "urlContextMetadata")
_PAGES = ("url_metadata", "urlMetadata")
_PAGE = ("retrieved_url", "retrievedUrl")


def web_search(metadata: Any) -> str:
    """Queries and sources, one a line, each once; empty where nothing was searched for.

    What has another shape is passed over: the metadata is the provider's own, and no contract.
    """
    # Most calls searched for nothing, and have none.
    return "\n".join(dict.fromkeys(_lines(metadata))) if metadata else ""


def _lines(metadata: Any) -> Iterator[str]:
    grounding = _of(metadata, _GROUNDING)
    for query in _list(grounding, _QUERIES):
        if isinstance(query, str):
            yield f"query: {query}"
    for chunk in _list(grounding, _CHUNKS):
        for source in chunk.values() if isinstance(chunk, dict) else ():
            told = [_of(source, (name,)) for name in ("title", "uri", "text")]
            if texts := [text for text in told if isinstance(text, str)]:
                yield f"source: {' '.join(texts)}"
    for page in _list(_of(metadata, _CONTEXT), _PAGES):
        if isinstance(url := _of(page, _PAGE), str):
            yield f"source: {url}"


def _of(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in names if name in value), None)


def _list(value: Any, names: tuple[str, ...]) -> list[Any]:
    found = _of(value, names)
    return found if isinstance(found, list) else []
