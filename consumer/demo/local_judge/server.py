"""llama-cpp-python's server, told about `json_schema`.

    python -m consumer.demo.local_judge.server MODEL HOST PORT CONTEXT_TOKENS

It can hold a model to a schema, but knows only the older way to ask for it, where the schema stands
beside `json_object`. Other servers (OpenAI's, llama.cpp's own, vLLM) take `json_schema` as it is.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import uvicorn
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OlderSchemas:
    """Passes requests on with `json_schema` in the older form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body = json.dumps(older(json.loads(await Request(scope, receive).body()))).encode()
        told = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        told.append((b"content-length", str(len(body)).encode()))
        given: Iterator[Message] = iter([{"type": "http.request", "body": body}])

        async def replay() -> Message:
            return next(given, None) or await receive()

        return await self._app({**scope, "headers": told}, replay, send)


def older(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its schema beside `json_object`."""
    form = request.get("response_format") or {}
    if form.get("type") != "json_schema":
        return request
    schema = form["json_schema"]["schema"]
    return {**request, "response_format": {"type": "json_object", "schema": schema}}


def main() -> None:
    model, host, port, context_tokens = sys.argv[1:]
    settings = ModelSettings(
        model=model, model_alias="local", n_ctx=int(context_tokens), n_threads=os.cpu_count() or 1
    )
    app = create_app(server_settings=ServerSettings(), model_settings=[settings])
    uvicorn.run(OlderSchemas(app), host=host, port=int(port))


if __name__ == "__main__":
    main()
