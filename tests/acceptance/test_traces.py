"""One trace from the request's traceparent to the events that answer it."""

import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from consumer import __version__
from consumer.errors import ConfigError
from consumer.traced import open_tracer
from tests.support.otlp import Collector, SentSpan, collector
from tests.support.stage import Event, Stage

TRACE, ASKER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{ASKER}-01", f"00-{'a' * 32}-{ASKER}-00"
STATE = "vendor=opaque"
CLIENT, PRODUCER, CONSUMER = 3, 4, 5
# Said in the session, by the prompt, and by the judge.
WORDS = ("payment-api", "OOM", "You are", "Every call answers", "sk-test-secret-key")


async def ask(stage: Stage, session_id: str, **headers: str) -> UUID:
    request_id = uuid4()
    encoded = [(name, text.encode()) for name, text in headers.items()]
    request = {"session_id": session_id, "request_id": str(request_id)}
    await stage.send(request, headers=encoded)
    return request_id


def of_request(spans: Collector, name: str, trace_id: str) -> SentSpan:
    (span,) = [span for span in spans.named(name) if span.trace_id == trace_id]
    return span


def place(event: Event) -> tuple[str, str, str]:
    """Trace id, span id and flags that the event tells on."""
    _, trace_id, span_id, flags = event.headers["traceparent"].split("-")
    return trace_id, span_id, flags


async def test_one_trace_from_the_request_to_its_event(stage: Stage) -> None:
    stage.stand_ins.add("s-good", "good")
    stage.stand_ins.add("s-unsampled", "simple")
    async with collector() as spans:
        settings: dict[str, Any] = {
            "tracing_enabled": "true",
            "otel_exporter_otlp_endpoint": spans.url,
            "otel_resource_attributes": "service.namespace=quality",
        }
        async with stage.consumer(**settings):
            good = await stage.answer(
                await ask(stage, "s-good", traceparent=SAMPLED, tracestate=STATE)
            )
            lost = await stage.answer(await ask(stage, "s-unknown"))
            unseen = await stage.answer(await ask(stage, "s-unsampled", traceparent=UNSAMPLED))
        # What was not sent by then was sent as the consumer stopped.
        assert good.topic == stage.topics.completed
        check_the_good_one(spans, stage, good)
        check_the_lost_one(spans, stage, lost)
    assert place(unseen)[0] == "a" * 32
    assert place(unseen)[2] == "00"
    assert "a" * 32 not in {span.trace_id for span in spans.spans}
    assert not [word for word in WORDS if word.encode() in spans.received]


def check_the_good_one(spans: Collector, stage: Stage, event: Event) -> None:
    taken = of_request(spans, f"process {stage.topics.requested}", TRACE)
    scored = of_request(spans, "score session", TRACE)
    fetched = of_request(spans, "fetch session", TRACE)
    judged = of_request(spans, "chat scripted-judge", TRACE)
    stored = of_request(spans, "store outcome", TRACE)
    sent = of_request(spans, f"send {stage.topics.completed}", TRACE)
    assert (taken.parent_id, taken.kind) == (ASKER, CONSUMER)
    assert scored.parent_id == taken.span_id
    for inner in (fetched, judged, stored):
        assert (inner.parent_id, inner.kind) == (scored.span_id, CLIENT)
    assert (sent.parent_id, sent.kind) == (scored.span_id, PRODUCER)
    assert place(event) == (TRACE, sent.span_id, "01")
    assert event.headers["tracestate"] == STATE
    assert stage.stand_ins.traceparents["s-good"] == f"00-{TRACE}-{fetched.span_id}-01"
    assert not any(span.failed for span in spans.spans if span.trace_id == TRACE)
    assert taken.resource["service.name"] == "score-consumer"
    assert taken.resource["service.version"] == __version__
    assert taken.resource["service.namespace"] == "quality"
    assert taken.attributes["messaging.destination.name"] == stage.topics.requested
    assert scored.attributes["scoring.outcome"] == "completed"
    judge = event.data["judge"]
    assert judged.attributes == {
        "server.address": "127.0.0.1",
        "server.port": int(stage.stand_ins.judge_url.rpartition(":")[2]),
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai-compatible",
        "gen_ai.request.model": "scripted-judge",
        "gen_ai.request.max_tokens": judged.attributes["gen_ai.request.max_tokens"],
        "gen_ai.response.model": judge["model"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": judge["input_tokens"],
        "gen_ai.usage.output_tokens": judge["output_tokens"],
    }
    assert scored.events["gen_ai.evaluation.result"] == {
        "gen_ai.evaluation.name": "alert-investigation",
        "gen_ai.evaluation.score.value": float(event.data["total_score"]),
        "gen_ai.evaluation.score.label": "ok",
        "gen_ai.conversation.id": "s-good",
        "scoring.score_id": event.data["score_id"],
        "scoring.profile_version": event.data["judge_profile_version"],
        "scoring.criteria_hash": event.data["criteria_hash"],
    }


def check_the_lost_one(spans: Collector, stage: Stage, event: Event) -> None:
    """A request that came without a trace began one; its failure is seen in it."""
    trace_id, span_id, flags = place(event)
    taken = of_request(spans, f"process {stage.topics.requested}", trace_id)
    scored = of_request(spans, "score session", trace_id)
    fetched = of_request(spans, "fetch session", trace_id)
    assert taken.parent_id == ""
    assert int(flags, 16) & 1, "not sampled"
    assert span_id == of_request(spans, f"send {stage.topics.failed}", trace_id).span_id
    for failed in (scored, fetched):
        assert failed.failed
        assert failed.attributes["error.type"] == "session_not_found"
    assert scored.attributes["scoring.outcome"] == "failed"
    assert not taken.failed


async def test_without_the_switch_nothing_of_it_is_imported(stage: Stage, tmp_path: Path) -> None:
    # The API package alone is FastAPI's, with or without us.
    for part in ("sdk", "exporter", "proto"):
        package = tmp_path / "opentelemetry" / part
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    stage.stand_ins.add("s-simple", "simple")
    async with stage.consumer(pythonpath=tmp_path):
        event = await stage.answer(await ask(stage, "s-simple", traceparent=SAMPLED))
    assert event.topic == stage.topics.completed
    assert event.headers["traceparent"] == SAMPLED
    assert stage.stand_ins.traceparents["s-simple"] is None


async def test_the_switch_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "consumer.edges.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"TRACING_ENABLED: needs .*score-consumer\[otel\]"):
        async with open_tracer(wanted=True):
            pass
