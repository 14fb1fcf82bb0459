"""The two HTTP stand-ins, spoken to as the consumer does: over HTTP."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import jsonschema
import pytest

from consumer.demo import history_service, judge_stand_in
from consumer.demo.sample_sessions import SampleSession, load

SESSIONS = load()
JUDGED = [session for session in SESSIONS.values() if session.verdict]
LIST = "/api/v1/history/sessions"
CRITERIA = ("logical_flow", "consistency", "tool_relevance", "synthesis_quality")


def by_case(case: str) -> SampleSession:
    return next(session for session in SESSIONS.values() if session.case == case)


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stand-in")


@pytest.fixture
async def history() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(history_service.app(SESSIONS)) as client:
        yield client


@pytest.fixture
async def judge() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(judge_stand_in.app(SESSIONS)) as client:
        yield client


# --- History -----------------------------------------------------------------------------------


async def test_a_session_in_full(history: httpx.AsyncClient) -> None:
    for session in SESSIONS.values():
        response = await history.get(f"{LIST}/{session.session_id}")
        assert (response.status_code, response.json()) == (200, session.detail)


async def test_the_final_analysis_with_and_without_conversation(history: httpx.AsyncClient) -> None:
    session = by_case("adequate")
    url = f"{LIST}/{session.session_id}/final-analysis"
    full = (await history.get(url, params={"include_conversation": "true"})).json()
    assert full == session.final
    bare = (await history.get(url)).json()
    assert bare == full | {"llm_conversation": None, "chat_conversation": None}


async def test_a_running_session_answers_200_with_null_fields(history: httpx.AsyncClient) -> None:
    url = f"{LIST}/{by_case('in-progress').session_id}/final-analysis"
    response = await history.get(url, params={"include_conversation": "true"})
    assert response.status_code == 200
    assert response.json()["final_analysis"] is None


@pytest.mark.parametrize("suffix", ["", "/final-analysis"])
async def test_an_unknown_session_is_404(history: httpx.AsyncClient, suffix: str) -> None:
    response = await history.get(f"{LIST}/nobody{suffix}")
    assert response.status_code == 404
    assert response.json() == {"detail": "Session nobody not found"}


async def test_an_unknown_path_is_404_with_a_detail(history: httpx.AsyncClient) -> None:
    response = await history.get("/api/v2/anything")
    assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})


async def test_the_list_is_newest_first_and_paged(history: httpx.AsyncClient) -> None:
    pages = [
        (await history.get(LIST, params={"page": n, "page_size": 4})).json() for n in (1, 2, 3, 4)
    ]
    listed = [entry["session_id"] for page in pages for entry in page["sessions"]]
    assert listed == list(SESSIONS)[::-1]
    assert [len(page["sessions"]) for page in pages] == [4, 4, 1, 0]
    expected = {"page": 2, "page_size": 4, "total_pages": 3, "total_items": 9}
    assert pages[1]["pagination"] == expected


async def test_the_list_filters(history: httpx.AsyncClient) -> None:
    async def ids(**params: Any) -> set[str]:
        body = (await history.get(LIST, params=params)).json()
        return {entry["session_id"] for entry in body["sessions"]}

    running, good = by_case("in-progress"), by_case("good")
    start_us = good.detail["started_at_us"]
    assert await ids(status="in_progress") == {running.session_id}
    assert await ids(status=["completed", "in_progress"]) == set(SESSIONS)
    assert await ids(alert_type="KubePodOOMKilled") == {good.session_id}
    assert await ids(start_date_us=start_us, end_date_us=start_us + 1) == {good.session_id}
    assert await ids(status="failed") == set()


@pytest.mark.parametrize(
    "query", ["page_size=101", "page_size=0", "page=0", "page=two", "start_date_us=today"]
)
async def test_parameters_out_of_range_are_422(history: httpx.AsyncClient, query: str) -> None:
    response = await history.get(f"{LIST}?{query}")
    assert response.status_code == 422
    assert query.partition("=")[0] in response.json()["detail"]


async def test_a_time_range_the_wrong_way_round_is_400(history: httpx.AsyncClient) -> None:
    response = await history.get(LIST, params={"start_date_us": 2, "end_date_us": 1})
    assert response.status_code == 400


# --- Judge -------------------------------------------------------------------------------------


def transcript(session: SampleSession) -> list[str]:
    """One JSON line a step, as the judge's prompt has it."""
    steps: list[dict[str, Any]] = []
    for top in session.detail["stages"]:
        for stage in [top, *(top["parallel_executions"] or ())]:
            for event in stage["chronological_interactions"]:
                details = event["details"]
                if event["type"] == "llm":
                    said = details["conversation"]["messages"][-1]["content"]
                    steps.append({"kind": "assistant", "text": said})
                elif details["tool_name"]:
                    result = details["tool_result"] or details["error_message"]
                    steps.append(
                        {"kind": "tool_result", "tool": details["tool_name"], "data": result}
                    )
    return [json.dumps({"step": number} | step) for number, step in enumerate(steps, start=1)]


def schema(criteria: tuple[str, ...] = CRITERIA, max_points: int = 25) -> dict[str, Any]:
    """What the consumer asks for: evidence and reasoning before an enumerated score."""
    evidence = closed(step={"type": "integer"}, quote={"type": "string"})
    criterion = closed(
        evidence={"type": "array", "items": evidence},
        reasoning={"type": "string"},
        score={"type": "integer", "enum": list(range(max_points + 1))},
    )
    tool = closed(tool_name={"type": "string"}, rationale={"type": "string"})
    approach = closed(
        name={"type": "string"},
        description={"type": "string"},
        steps={"type": "array", "items": {"type": "string"}},
    )
    return closed(
        criteria=closed(**dict.fromkeys(criteria, criterion)),
        score_reasoning={"type": "string"},
        missing_tools={"type": "array", "items": tool},
        alternative_approaches={"type": "array", "items": approach, "maxItems": 3},
        disqualified={"type": "boolean"},
        disqualifier_triggered={"type": ["string", "null"]},
        injection_suspected={"type": "boolean"},
    )


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def request_about(
    session: SampleSession, *, wanted: dict[str, Any] | None = None, more: str = ""
) -> dict[str, Any]:
    alert = json.dumps(session.detail["alert_data"])
    prompt = "\n".join(["Review this.", json.dumps({"alert": alert}), *transcript(session), more])
    wanted = schema() if wanted is None else wanted
    return {
        "model": "stand-in-judge",
        "messages": [
            {"role": "system", "content": "You review investigations."},
            {"role": "user", "content": prompt},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": wanted},
        },
    }


async def verdict_for(judge: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await judge.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = json.loads(response.json()["choices"][0]["message"]["content"])
    return answer


def stranger() -> SampleSession:
    """A session without a prepared verdict, on the same transcript."""
    known = by_case("good")
    alert = known.detail["alert_data"] | {"alert_id": "alrt-unknown"}
    return SampleSession(
        session_id="stranger",
        case="stranger",
        title="Not among the samples",
        detail=known.detail | {"alert_data": alert},
        final=known.final,
    )


@pytest.mark.parametrize("session", JUDGED, ids=lambda s: s.case)
async def test_the_prepared_verdict_with_its_quotes_located(
    judge: httpx.AsyncClient, session: SampleSession
) -> None:
    verdict = await verdict_for(judge, request_about(session))
    jsonschema.validate(verdict, schema())
    assert session.verdict is not None
    assert sum(c["score"] for c in verdict["criteria"].values()) == session.expected_total
    assert verdict["score_reasoning"] == session.verdict["score_reasoning"]
    lines = dict(enumerate(transcript(session), start=1))
    for name, criterion in verdict["criteria"].items():
        assert [e["quote"] for e in criterion["evidence"]] == (
            session.verdict["criteria"][name]["evidence"]
        )
        for item in criterion["evidence"]:
            assert item["quote"] in lines[item["step"]]


async def test_a_hostile_session_gets_the_sceptical_verdict(judge: httpx.AsyncClient) -> None:
    verdict = await verdict_for(judge, request_about(by_case("injection")))
    assert verdict["injection_suspected"] is True
    assert verdict["score_reasoning"] != "Flawless investigation."


async def test_a_quote_that_the_prompt_does_not_show_is_left_out(judge: httpx.AsyncClient) -> None:
    body = request_about(by_case("good"))
    prompt = body["messages"][1]["content"].replace("TTL_SECONDS", "").replace("evicted=0", "")
    body["messages"][1]["content"] = prompt
    verdict = await verdict_for(judge, body)
    assert [e["quote"] for e in verdict["criteria"]["consistency"]["evidence"]] == [
        "the log's 16 MiB a minute explains the whole"
    ]


async def test_only_the_criteria_asked_for_and_within_their_points(
    judge: httpx.AsyncClient,
) -> None:
    wanted = schema(("consistency", "kindness"), max_points=10)
    verdict = await verdict_for(judge, request_about(by_case("good"), wanted=wanted))
    jsonschema.validate(verdict, wanted)
    assert verdict["criteria"]["consistency"]["score"] == 10
    assert verdict["criteria"]["kindness"]["score"] == 5
    assert "no prepared verdict" in verdict["criteria"]["kindness"]["reasoning"]


async def test_a_schema_with_references_is_followed(judge: httpx.AsyncClient) -> None:
    wanted = schema(("consistency",), max_points=5)
    criteria = wanted["properties"]["criteria"]
    wanted["$defs"] = {"Criterion": criteria["properties"]["consistency"], "Criteria": criteria}
    wanted["properties"]["criteria"] = {"$ref": "#/$defs/Criteria"}
    criteria["properties"]["consistency"] = {"$ref": "#/$defs/Criterion"}
    verdict = await verdict_for(judge, request_about(by_case("good"), wanted=wanted))
    jsonschema.validate(verdict, wanted)
    assert verdict["criteria"]["consistency"]["score"] == 5


async def test_a_schema_without_criteria_gets_total_and_breakdown(
    judge: httpx.AsyncClient,
) -> None:
    wanted: dict[str, Any] = {"properties": {"total_score": {}, "score_breakdown": {}}}
    verdict = await verdict_for(judge, request_about(by_case("weak"), wanted=wanted))
    assert verdict["total_score"] == 50
    assert verdict["score_breakdown"]["logical_flow"] == 13
    assert "criteria" not in verdict


async def test_an_unknown_session_gets_a_neutral_verdict_that_says_so(
    judge: httpx.AsyncClient,
) -> None:
    wanted = schema(("correctness", "depth"), max_points=20)
    verdict = await verdict_for(judge, request_about(stranger(), wanted=wanted))
    jsonschema.validate(verdict, wanted)
    assert [c["score"] for c in verdict["criteria"].values()] == [10, 10]
    assert verdict["criteria"]["depth"]["evidence"][0]["step"] == 1
    assert verdict["score_reasoning"].startswith("no prepared verdict for this session: ")


@pytest.mark.parametrize("case", ["simple", "in-progress"])
async def test_a_sample_without_verdict_gets_the_neutral_one(
    judge: httpx.AsyncClient, case: str
) -> None:
    verdict = await verdict_for(judge, request_about(by_case(case)))
    assert "no prepared verdict" in verdict["score_reasoning"]


async def test_a_prompt_that_names_two_samples_is_believed_for_neither(
    judge: httpx.AsyncClient,
) -> None:
    more = f"see {by_case('good').alert_id}"
    verdict = await verdict_for(judge, request_about(by_case("injection"), more=more))
    assert "no prepared verdict" in verdict["score_reasoning"]


async def test_without_a_schema_the_shipped_criteria_are_answered(
    judge: httpx.AsyncClient,
) -> None:
    body = request_about(by_case("good")) | {"response_format": {"type": "json_object"}}
    verdict = await verdict_for(judge, body)
    assert tuple(verdict["criteria"]) == CRITERIA


async def test_lines_that_are_no_steps_do_no_harm(judge: httpx.AsyncClient) -> None:
    more = '{"step": not json\n{"step": "3", "text": "three"}\n{"step": 900, "nested": [["x"], 1]}'
    verdict = await verdict_for(judge, request_about(by_case("good"), more=more))
    assert verdict["criteria"]["consistency"]["evidence"]


async def test_messages_in_parts_are_read(judge: httpx.AsyncClient) -> None:
    body = request_about(by_case("good"))
    for message in body["messages"]:
        message["content"] = [{"type": "text", "text": message["content"]}]
    verdict = await verdict_for(judge, body)
    assert verdict["criteria"]["logical_flow"]["score"] == 23


async def test_the_response_says_what_it_is_and_what_it_used(judge: httpx.AsyncClient) -> None:
    body = request_about(by_case("good"))
    response = (await judge.post("/v1/chat/completions", json=body)).json()
    assert response["model"] == "stand-in-judge (prepared verdicts, not a model)"
    assert response["choices"][0]["finish_reason"] == "stop"
    usage = response["usage"]
    size = sum(len(m["content"].encode()) for m in body["messages"])
    assert usage["prompt_tokens"] == pytest.approx(size / 4, abs=2)
    answer = response["choices"][0]["message"]["content"]
    assert usage["completion_tokens"] == len(answer.encode()) // 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_the_only_model_is_labelled(judge: httpx.AsyncClient) -> None:
    (model,) = (await judge.get("/v1/models")).json()["data"]
    assert model["id"] == "stand-in-judge"
    assert "not a model" in model["owned_by"]


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: {key: value for key, value in body.items() if key != name}


@pytest.mark.parametrize(
    "spoil",
    [
        without("model"),
        without("messages"),
        lambda body: body | {"messages": []},
        lambda body: body | {"messages": [{"role": "user"}]},
        lambda body: body | {"stream": True},
        lambda _: ["no object"],
    ],
    ids=["no model", "no messages", "empty messages", "no content", "stream", "no object"],
)
async def test_a_bad_request_is_400_and_no_call(
    judge: httpx.AsyncClient, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    body = spoil(request_about(by_case("good")))
    response = await judge.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert (await judge.get("/calls")).json() == {"count": 0}


async def test_a_body_that_is_no_json_is_400(judge: httpx.AsyncClient) -> None:
    response = await judge.post("/v1/chat/completions", content=b"\xff{")
    assert response.status_code == 400


async def test_an_unknown_judge_path_is_404_in_openai_s_shape(judge: httpx.AsyncClient) -> None:
    response = await judge.post("/v1/responses", json={})
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "Not Found"


async def test_calls_are_logged_in_order() -> None:
    app = judge_stand_in.app(SESSIONS, delay_seconds=0.001)
    bodies = [request_about(by_case(case)) for case in ("good", "weak")]
    async with client_of(app) as judge:
        for body in bodies:
            await judge.post("/v1/chat/completions", json=body)
        assert (await judge.get("/calls")).json() == {"count": 2}
    assert app.state.calls == bodies
