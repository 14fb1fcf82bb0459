"""One field of TARSy's answer is odd: the session has the score that it had, or it is told why it
has none, by the field's path. Which fields may change a score instead, and why, is listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import pytest

from consumer.edges.history.tarsy_python_shape import Detail, parse, session
from consumer.errors import HistoryInvalid
from consumer.pipeline import session_cost_usd, session_price
from consumer.scoring.aggregate import aggregate, look
from consumer.scoring.prompt import KNOWN, render
from consumer.scoring.scorers.base import subject
from consumer.scoring.transcript import transcript
from tests.bench.rules import PRICES, every_scorer
from tests.contract.tarsy_agents import KINDS, Json
from tests.support.skips import SHARED
from tests.unit import builders

RECORDED = sorted((SHARED / "history" / "recorded").glob("*.json"))
MISSING = object()
ODD: tuple[Any, ...] = (
    None,
    False,
    -1,
    2**70,
    1e300,
    "",
    "odd",
    True,
    [],
    [1],
    {},
    {"odd": 1},
    MISSING,
)
TEMPLATE = "\n".join(f"{{{{{name}}}}}" for name in KNOWN)
Place = tuple[str | int, ...]

#: Patterns of paths without the numbers, each with why such a field may change what a score is.
MAY_CHANGE = {
    r"alert_data(\..+)?": "the alert is evidence, and shown",
    r"runbook_url": "the same",
    r"final_analysis": "it is what is scored",
    r"(.+\.)?stages|.+\.parallel_executions": "fewer stages are less work",
    r".+\.(llm_interactions|mcp_communications|messages|conversation)": "the same",
    r"session_level_interactions": "the same, for calls that belong to no stage",
    r".+\.(stage_name|agent|status|error_message)": "the judge reads it",
    r".+\.(chat_id|parallel_type)": "tells what kind of work a stage is",
    r".+\.(role|content|thinking_content|response_metadata(\..+)?)": "what was said and looked up",
    r".+\.details\.success": "tells failures",
    r".+\.(interaction_type|mcp_event_id|id)": "tells summaries, and of which result",
    r".+\.(server_name|tool_name|communication_type)": "which tool was called",
    r".+\.(tool_arguments|tool_result|available_tools)(\..+)?": "the judge reads it",
    r".+\.timestamp_us": "tells the order",
    r".+\.(model_name|provider)": "tells the price",
    r".+\.details\.(input|output|total)_tokens": "absent, they are no part of the sums",
    r"duration_ms": "absent, the session's duration is not measured",
    r"session_metadata(\..+)?|alert_type": "chooses the profile; the alert's type is evidence",
}
_MAY_CHANGE = re.compile("|".join(f"(?:{pattern})" for pattern in MAY_CHANGE))


def answers() -> dict[str, Json]:
    own = {kind: made() for kind, made in KINDS.items()}
    return own | {path.stem: json.loads(path.read_text("utf-8")) for path in RECORDED}


def paths(value: Any, path: Place = ()) -> Iterator[Place]:
    """All paths below; of `chronological_interactions`, which only repeats, no more than itself."""
    if path:
        yield path
    if path[-1:] == ("chronological_interactions",):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*path, number))


def without_numbers(path: Place) -> str:
    return ".".join(str(key) for key in path if isinstance(key, str))


@cache
def cases() -> dict[str, tuple[Json, Place]]:
    """Each kind of path, in the smallest answer that has it."""
    found: dict[str, tuple[Json, Place]] = {}
    for answer in sorted(answers().values(), key=lambda answer: len(json.dumps(answer))):
        for path in paths(answer):
            found.setdefault(without_numbers(path), (answer, path))
    return {name: case for name, case in found.items() if name != "session_id"}


def changed(answer: Json, path: Place, odd: Any) -> bytes:
    copy = json.loads(json.dumps(answer))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    if odd is not MISSING:
        inside[path[-1]] = odd
    elif isinstance(inside, dict):
        del inside[path[-1]]
    else:
        inside.pop(path[-1])
    return json.dumps(copy).encode()


PATH = r"can't be read: [a-z_]+(\.[^ ]+)*: ."
LABELS = {"PodKilled": "pods"}
RULES = every_scorer()
JUDGED = builders.profile()


@lru_cache(maxsize=64)
def outcome(body: bytes) -> tuple[Any, ...]:
    """The score by all rules and what a judge is asked; or the reason that there is none."""
    try:
        detail = parse(Detail, body)
    except HistoryInvalid as error:
        return ("refused",) if re.search(PATH, str(error)) else ("refused without a path", error)
    found = session(detail, final_analysis=detail.final_analysis, labels=LABELS)
    price, cost_usd = session_price(found, PRICES), session_cost_usd(found, PRICES)
    about = subject(found, price=price, cost_usd=cost_usd)
    findings = look(RULES, about)
    total = aggregate(RULES, findings, None)
    prompt = render(TEMPLATE, about, transcript(found), JUDGED, nonce="n")
    return found.label, findings, total, prompt


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_field_costs_no_session_its_score_without_a_reason(odd: Any) -> None:
    for name, (answer, path) in cases().items():
        after = outcome(changed(answer, path, odd))
        if not _MAY_CHANGE.fullmatch(name):
            assert after in (("refused",), outcome(json.dumps(answer).encode())), name


@pytest.mark.parametrize("odd", ODD)
def test_no_decoration_costs_a_session_its_score(odd: Any) -> None:
    """What is only told beside the work: figures, times of the session, names for people."""
    decoration = re.compile(
        r".+\.duration_ms|session_(input|output|total)_tokens|(.+\.)?step_description|author"
        r"|started_at_us|completed_at_us|chain_definition|.+\.(stage_output|temperature|event_id)"
    )
    for name, (answer, path) in cases().items():
        if decoration.fullmatch(name):
            before = outcome(json.dumps(answer).encode())
            assert outcome(changed(answer, path, odd)) == before, name


def test_each_path_of_the_recorded_answers_is_tried() -> None:
    if not RECORDED:
        pytest.skip("TARSy's own answers are not in this repo")
    tried = cases().keys() | {"session_id"}
    for file in RECORDED:
        assert {without_numbers(p) for p in paths(json.loads(file.read_text("utf-8")))} <= tried


def test_each_entry_of_the_list_is_needed() -> None:
    for pattern in MAY_CHANGE:
        outcomes = (
            (before, outcome(changed(answer, path, odd)))
            for answer in map(json.dumps, (made() for made in KINDS.values()))
            for answer, before in [(json.loads(answer), outcome(answer.encode()))]
            for path in paths(answer)
            if re.fullmatch(pattern, without_numbers(path))
            for odd in ODD
        )
        assert any(after not in (("refused",), before) for before, after in outcomes), pattern
