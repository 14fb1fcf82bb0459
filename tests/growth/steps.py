"""The steps that an input goes through, in the order in which it does."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import httpx
from pydantic_core import to_json
from rich.console import Console

from consumer import terminal
from consumer.analytics.scorecards import Scorecard, csv_lines, json_lines
from consumer.api import app
from consumer.cloudevents import Unacceptable
from consumer.dlq import Letter, judged, sent_back
from consumer.edges.history.tarsy_python_shape import Detail, parse, session
from consumer.edges.judge.base import Answer, HttpProvider, problem_in
from consumer.edges.judge.openai import OpenAIProvider
from consumer.edges.postgres.rows import outbox_columns, score_columns
from consumer.edges.prices import PriceList
from consumer.errors import HistoryInvalid
from consumer.intake import IntakeSettings, dead_letter, incoming
from consumer.pipeline import session_cost_usd, session_price
from consumer.ports import Sent
from consumer.scoring import injection
from consumer.scoring.aggregate import aggregate, look
from consumer.scoring.criteria import criteria
from consumer.scoring.elision import _LEAST_LINE_BYTES, DoesNotFit, Fitted, fit
from consumer.scoring.judgement import Judgement, Sample
from consumer.scoring.patterns import compiled
from consumer.scoring.profile import Profile, ProfileInvalid, parse_profile
from consumer.scoring.prompt import KNOWN, correction
from consumer.scoring.quantities import kept_values
from consumer.scoring.score import new_score
from consumer.scoring.scorers import SCORERS
from consumer.scoring.scorers.base import subject
from consumer.scoring.scorers.keywords import _wanted
from consumer.scoring.scorers.prose import lines
from consumer.scoring.sent import SentRequest, sent_request, unpacked, whole
from consumer.scoring.tool_report import BYTES_PER_TOKEN
from consumer.scoring.transcript import transcript, utf8_size
from consumer.scoring.verdict import Verdict, VerdictInvalid, check
from tests.bench.rules import every_scorer
from tests.growth.measure import Made, Step
from tests.unit import builders

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PRICES = PriceList()
RULES = every_scorer()
PATTERNS = builders.rules_profile(disqualifiers=["pattern:rm -rf", "pattern:drop +table"])
TEMPLATE = "".join(f"{{{{{name}}}}}" for name in KNOWN)
JUDGED = builders.profile()


# --- A session ---------------------------------------------------------------------------------


def _parse(made: Made) -> Detail | None:
    _forget()
    try:
        return parse(Detail, made["input"])
    except HistoryInvalid:
        return None


def _forget() -> None:
    """What is kept would spare the second try its work."""
    for kept in (kept_values, _wanted, compiled, lines):
        kept.cache_clear()


def _session(made: Made) -> Any:
    detail = made["parse"]
    return detail and session(detail, final_analysis=detail.final_analysis, labels={})


def _subject(made: Made) -> Any:
    if (run := made["session"]) is None:
        return None
    price, cost = session_price(run, PRICES), session_cost_usd(run, PRICES)
    return subject(run, price=price, cost_usd=cost)


def _scored(name: str, made: Made) -> Any:
    params = next(c.uses[0].typed_params for c in RULES.criteria if c.id == name)
    return made["subject"] and SCORERS[name].score(made["subject"], params)


def _patterns(made: Made) -> Any:
    return made["subject"] and look(PATTERNS, made["subject"])


def _flags(made: Made) -> Any:
    return made["session"] and injection.flags(made["session"])


def _whole(made: Made) -> Fitted | None:
    about = made["subject"]
    return about and fit(TEMPLATE, about, JUDGED, nonce="n", budget_tokens=10**9)


def _sent(made: Made) -> SentRequest | None:
    if (fitted := made["prompt, whole"]) is None:
        return None
    return sent_request(b"judge\n" + to_json({"prompt": fitted.prompt}), fitted.prompt, "n")


def _rebuilt(made: Made) -> Any:
    return made["sent"] and whole([unpacked(content) for content in made["sent"].contents], "n")


def _shortened(share: float, made: Made) -> Fitted | None:
    """The prompt, with room for this share of the transcript; for more where this is so little that
    nothing would be tried.
    """
    if (whole := made["prompt, whole"]) is None:
        return None
    shown = whole.transcript
    room = max(int(share * shown.size), (_LEAST_LINE_BYTES + 2) * len(shown.steps))
    size = utf8_size(whole.prompt) - shown.size + room
    try:
        tokens = size // BYTES_PER_TOKEN
        return fit(TEMPLATE, made["subject"], JUDGED, nonce="n", budget_tokens=tokens)
    except DoesNotFit:
        return None


def _score(made: Made) -> Any:
    if (about := made["subject"]) is None:
        return None
    _forget()
    return new_score(
        score_id=UUID(int=1),
        request_id=UUID(int=2),
        triggered_by="t",
        subject=about,
        profile=RULES,
        criteria_hash="a",
        total=aggregate(RULES, look(RULES, about), None),
        judgement=None,
        duration_ms=1,
    )


def _rows(made: Made) -> Any:
    if made["score"] is None:
        return None
    columns = score_columns(made["score"])
    return [json.dumps(value, default=len) for value in columns if isinstance(value, dict | list)]


SESSION: Mapping[str, Step] = {
    "parse": _parse,
    "session": _session,
    "subject": _subject,
    **{name: partial(_scored, name) for name in SCORERS},
    "patterns": _patterns,
    "flags": _flags,
    "prompt, whole": _whole,
    "sent": _sent,
    "sent, rebuilt": _rebuilt,
    "prompt, shortened": partial(_shortened, 0.5),
    "prompt, hardly": partial(_shortened, 0.0),
    "score": _score,
    "rows": _rows,
}


# --- A record ----------------------------------------------------------------------------------


def _read(made: Made) -> Any:
    try:
        return incoming(made["input"])
    except Unacceptable as error:
        return error


def _letter(made: Made) -> Any:
    refused = made["read"]
    reason = refused if isinstance(refused, Unacceptable) else Unacceptable("bad_json", "x")
    return dead_letter(made["input"], reason, _INTAKE, NOW)


def _redrive(made: Made) -> Any:
    letter = Letter(record=made["input"])
    judged(letter, "score.requested", max_redrives=3, force=False)
    return sent_back(letter, "score.requested").size


_INTAKE = IntakeSettings(
    bootstrap="",
    topic="score.requested",
    dlq_topic="dlq",
    group_id="g",
    batch_records=1,
    high_water=1,
    invalid_share=1,
    stale_after_s=1,
    session_timeout_s=1,
)
RECORD: Mapping[str, Step] = {
    "read": _read,
    "letter": _letter,
    "stored": lambda made: (outbox_columns([made["letter"]]), made["letter"].size),
    "redrive": _redrive,
}


# --- A judge's answer --------------------------------------------------------------------------


def _provider() -> HttpProvider:
    return OpenAIProvider(
        client=httpx.AsyncClient(), name="openai", model="m", max_output_tokens=1000
    )


def _completion(made: Made) -> str:
    """The text of the answer, inside the provider's own JSON."""
    message = {"content": made["input"][1]}
    body = json.dumps({"choices": [{"message": message}]}, ensure_ascii=False).encode()
    answer = Answer(status=200, headers={}, body=body)
    problem_in(answer)
    sent = Sent(path="judge", body=b"", dialect="json_schema", max_tokens=1, temperature=0.0)
    return _provider()._completion(answer.json(), sent).text


def _verdict(made: Made) -> Any:
    (by, run), text = made["input"][0], made["completion"]
    try:
        return check(text, by, run, transcript(run))
    except VerdictInvalid as error:
        return error


def _corrected(made: Made) -> Any:
    refused = made["verdict"]
    return isinstance(refused, VerdictInvalid) and correction(refused.problems)


def _judged(made: Made) -> Any:
    if not isinstance(verdict := made["verdict"], Verdict):
        return None
    (by, run), _ = made["input"]
    about = builders.about(run)
    judgement = Judgement(samples=(_sample(verdict), _sample(verdict)), totals=(50, 60))
    return new_score(
        score_id=UUID(int=1),
        request_id=UUID(int=2),
        triggered_by="t",
        subject=about,
        profile=by,
        criteria_hash="a",
        total=aggregate(by, look(by, about), judgement.view),
        judgement=judgement,
        duration_ms=1,
    )


def _sample(verdict: Verdict) -> Sample:
    return Sample(
        verdict=verdict,
        provider="p",
        model="m",
        fingerprint=None,
        asked_model="m",
        dialect="json_schema",
        max_tokens=1,
        temperature=0.0,
        calls=1,
        input_tokens=1,
        output_tokens=1,
        cost_usd=None,
        nonce="n",
        request=sent_request(b"judge\nprompt", "prompt", "n"),
    )


JUDGE: Mapping[str, Step] = {
    "completion": _completion,
    "verdict": _verdict,
    "correction": _corrected,
    "score": _judged,
    "rows": _rows,
}


# --- A profile, a body, what is shown ----------------------------------------------------------


def _profile(made: Made) -> Profile | None:
    _forget()
    try:
        return parse_profile(json.loads(made["input"]))
    except ProfileInvalid:
        return None


def _hash(made: Made) -> Any:
    return made["profile"] and criteria(made["profile"], None)


def _looked(made: Made) -> Any:
    if (profile := made["profile"]) is None or profile.needs_judge:
        return None
    return aggregate(profile, look(profile, builders.about(builders.session())), None)


PROFILE: Mapping[str, Step] = {"profile": _profile, "hash": _hash, "looked": _looked}


def _posted(made: Made) -> int:
    """What the API answers; there are no servers behind it."""

    async def post() -> int:
        api = app.build(None)
        transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            path, body = made["input"]
            headers = {"content-type": "application/json"}
            answer = await client.post(path, content=body, headers=headers)
            return answer.status_code

    return asyncio.run(post())


BODY: Mapping[str, Step] = {"posted": _posted}
EXPORT: Mapping[str, Step] = {
    "csv": lambda made: csv_lines(made["input"]),
    "json": lambda made: json_lines(made["input"]),
}


def _shown(made: Made) -> str:
    console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=140)
    console.print(terminal.score_card(made["input"]))
    return f"{console.file}"


SHOW: Mapping[str, Step] = {"shown": _shown}

CARD_FIELDS = tuple(Scorecard.model_fields)
SHOWN: Mapping[str, Any] = {
    "score_id": "1",
    "session_id": "s",
    "total_score": 31,
    "judge_profile_id": "review",
    "judge_profile_version": 2,
    "criteria_hash": "c",
    "judge_model": None,
    "judge_skipped": None,
    "samples": [],
    "scored_at": NOW,
    "confidence": 0.6,
    "score_details": [],
    "gate": {"results": []},
    "tool_report": None,
    "disqualified": False,
    "quality_risk": [],
    "injection_suspected": False,
    "injection_flags": [],
    "elision": None,
    "score_reasoning": "",
    "missing_tools": [],
    "alternative_approaches": [],
}
