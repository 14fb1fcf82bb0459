"""What tests of the judge share: configurations, verdicts, prices, and two more providers' APIs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from consumer.demo.world import ConsumerProcess
from consumer.resources import resource
from tests.support.stand_ins import Fault, StandIns, answer

Json = dict[str, Any]

JUDGE = "openai-compatible"
CRITERIA = ("logical_flow", "consistency", "tool_relevance", "synthesis_quality")
GEMINI_KEY, ANTHROPIC_KEY = "gemini-test-key", "anthropic-test-key"


def configured(
    folder: Path, *profiles: Mapping[str, Any], providers: Mapping[str, Mapping[str, Any]]
) -> Path:
    """The shipped configuration with these profiles added, and these fields of providers."""
    made = folder / "config"
    shutil.copytree(resource("config"), made, dirs_exist_ok=True)
    known = yaml.safe_load((made / "llm_providers.yaml").read_text())
    for name, fields in providers.items():
        known[name].update(fields)
    (made / "llm_providers.yaml").write_text(yaml.safe_dump(known))
    for profile in profiles:
        (made / "profiles" / f"{profile['id']}.yaml").write_text(yaml.safe_dump(dict(profile)))
    return made


def shipped(name: str, *, id: str, judge: Mapping[str, Any]) -> Json:  # noqa: A002
    """A shipped profile under another id, which no label selects, with this judge."""
    profile: Json = yaml.safe_load((resource("config") / "profiles" / f"{name}.yaml").read_text())
    labels = [f"only-{id}"]
    return {**profile, "id": id, "match_labels": labels, "judge": {**profile["judge"], **judge}}


def verdict(points: int, *, quote: tuple[int, str] | None = None) -> str:
    """A valid verdict by the shipped alert-investigation profile: so many points for each."""
    evidence = [{"step": quote[0], "quote": quote[1]}] if quote else []
    said = {"evidence": evidence, "reasoning": "as scripted", "score": points}
    return json.dumps(
        {
            "criteria": dict.fromkeys(CRITERIA, said),
            "score_reasoning": "as scripted",
            "missing_tools": [],
            "alternative_approaches": [],
            "disqualified": False,
            "disqualifier_triggered": None,
            "injection_suspected": False,
        }
    )


def completed(content: str, *, read: int, written: int) -> Fault:
    """A chat completion that took so many tokens."""
    message = {"role": "assistant", "content": content, "refusal": None}
    return answer(
        200,
        {
            "model": "scripted-judge",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": read, "completion_tokens": written},
        },
    )


async def figures(consumer: ConsumerProcess) -> dict[tuple[str, tuple[str, ...]], float]:
    """All metrics of a consumer, by name and the values of their labels."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{consumer.url}/metrics")).text
    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return {(s.name, tuple(s.labels.values())): s.value for s in samples}


def other_apis(stand_ins: StandIns) -> Starlette:
    """The judge stand-in behind Gemini's and Anthropic's APIs, each with its key."""

    async def gemini(request: Request) -> Response:
        if request.headers.get("x-goog-api-key") != GEMINI_KEY:
            return JSONResponse({"error": {"status": "PERMISSION_DENIED"}}, status_code=403)
        body = await request.json()
        prompt = body["contents"][0]["parts"][0]["text"]
        schema = body["generationConfig"]["responseJsonSchema"]
        said = await _asked(stand_ins, prompt, schema)
        parts = [{"text": said["choices"][0]["message"]["content"]}]
        usage = said["usage"]
        return JSONResponse(
            {
                "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
                "usageMetadata": {
                    "promptTokenCount": usage["prompt_tokens"],
                    "candidatesTokenCount": usage["completion_tokens"],
                },
                "modelVersion": request.path_params["model"],
            }
        )

    async def anthropic(request: Request) -> Response:
        if request.headers.get("x-api-key") != ANTHROPIC_KEY:
            return JSONResponse({"error": {"type": "authentication_error"}}, status_code=401)
        body = await request.json()
        schema = body["output_config"]["format"]["schema"]
        said = await _asked(stand_ins, body["messages"][0]["content"], schema)
        usage = said["usage"]
        return JSONResponse(
            {
                "model": body["model"],
                "content": [{"type": "text", "text": said["choices"][0]["message"]["content"]}],
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": usage["prompt_tokens"],
                    "output_tokens": usage["completion_tokens"],
                },
            }
        )

    return Starlette(
        routes=[
            Route("/v1beta/models/{model}:generateContent", gemini, methods=["POST"]),
            Route("/v1/messages", anthropic, methods=["POST"]),
        ]
    )


def other_keys(url: str) -> dict[str, str]:
    """The settings that send these two providers' requests to `other_apis` at this URL."""
    return {
        "gemini_base_url": f"{url}/v1beta",
        "gemini_api_key": GEMINI_KEY,
        "anthropic_base_url": f"{url}/v1",
        "anthropic_api_key": ANTHROPIC_KEY,
    }


async def _asked(stand_ins: StandIns, prompt: str, schema: Json) -> Json:
    """What the stand-in answers to the same prompt and schema, by chat completions."""
    request = {
        "model": "asked-by-another-api",
        "messages": [{"role": "user", "content": prompt}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }
    async with httpx.AsyncClient() as http:
        response = await http.post(f"{stand_ins.judge_url}/v1/chat/completions", json=request)
    body: Json = response.json()
    return body
