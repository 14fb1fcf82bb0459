"""The corpus of attacks: each planted in a session, and what a fooled judge answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from consumer.scoring.profile import Profile
from consumer.scoring.session import AvailableTool, Session
from tests.unit.builders import (
    answer,
    available,
    criterion_answer,
    free_form_answer,
    free_form_profile,
    message,
    profile,
    session,
    stage,
    tool_call,
)

CORPUS = Path(__file__).with_name("corpus.yaml")
PLANTED = 3  # the number of the step that holds a planted text


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One entry of corpus.yaml; its head says what the fields mean."""

    id: str
    kind: str
    where: str
    text: str
    flagged: list[str]
    fooled: dict[str, Any] | None = None
    refused: str | None = None
    depends_on_model: bool = False
    verified: float | None = None
    min_verified: float | None = None
    free_form: bool = False
    disqualifiers: tuple[str, ...] = ()

    @property
    def session(self) -> Session:
        return planted(self.where, self.text)

    @property
    def profile(self) -> Profile:
        judge = {} if self.min_verified is None else {"min_verified_quotes": self.min_verified}
        build = free_form_profile if self.free_form else profile
        return build(judge=judge, disqualifiers=list(self.disqualifiers))

    @property
    def answer(self) -> str:
        """What the fooled judge says, word for word."""
        how = self.fooled or {}
        if "text" in how:
            return str(how["text"])
        good = free_form_answer() if self.free_form else answer()
        if "flow" in how:
            good["criteria"]["logical_flow"] = criterion_answer(**how["flow"])
        told = json.dumps({**good, **how.get("changes", {})})
        if "replaced" in how:
            old, new = how["replaced"]
            assert old in told
            told = told.replace(old, new, 1)
        return told + str(how.get("after", ""))


def load() -> list[Attack]:
    """All attacks, in the order of the file."""
    return [Attack(**raw) for raw in yaml.safe_load(CORPUS.read_text("utf-8"))]


def planted(where: str, text: str) -> Session:
    """A session of three steps that holds the text in this place: in the third, if in a step."""
    steps = (message(), tool_call())
    tools = available("pods_get", "pods_log")
    calls: dict[str, dict[str, Any]] = {
        "tool_result": {"result": text},
        "tool_arguments": {"arguments": {text: [text]}},
        "tool_error": {"result": "", "failure": "transport", "error": text},
        "tool_name": {"tool": text},
    }
    match where:
        case "assistant" | "user":
            return session(*steps, message(text, role=where))
        case "tool_result" | "tool_arguments" | "tool_error" | "tool_name":
            listed = (*tools, *available(text)) if where == "tool_name" else tools
            return session(*steps, tool_call(**calls[where]), available_tools=listed)
        case "stage_name":
            odd = stage(message("Thought: done"), name=text)
            return session(stages=(stage(*steps), odd))
        case "tool_description":
            told = AvailableTool(server="kubernetes", name="nodes_top", description=text)
            return session(*steps, message("Thought: done"), available_tools=(*tools, told))
    elsewhere: dict[str, Any] = {
        "alert": {"alert_data": {"message": text, text: "key"}},
        "runbook_url": {"runbook_url": text},
        "final_analysis": {"final_analysis": text},
    }
    return session(*steps, message("Thought: done"), **elsewhere[where])
