"""The judge's prompt: a template with placeholders, filled in one pass.

One pass means that a placeholder inside a transcript stays the text that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from consumer.scoring.profile import Profile
from consumer.scoring.session import Session
from consumer.scoring.transcript import (
    Transcript,
    encode,
    fence,
    tool_report_text,
    tools_text,
)
from consumer.scoring.verdict import output_schema

REQUIRED = ("SESSION_CONVERSATION", "OUTPUT_SCHEMA")
KNOWN = (
    *REQUIRED,
    "ALERT_DATA",
    "AVAILABLE_TOOLS",
    "FINAL_ANALYSIS",
    "RUNBOOK",
    "CRITERIA",
    "TOOL_REPORT",
)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
# What its author must have meant as one: `{{ CRITERIA }}` would reach the judge as it stands.
_PLACEHOLDER_LIKE = re.compile(r"\{\{([^{}\n]*)\}\}")


def template_problems(template: str) -> list[str]:
    """What makes a template unusable: unknown placeholders, or a required one that is missing."""
    used = set(_PLACEHOLDER_LIKE.findall(template))
    allowed = ", ".join("{{" + name + "}}" for name in KNOWN)
    unknown = [
        f"unknown placeholder {{{{{name}}}}}; allowed: {allowed}"
        for name in sorted(used - set(KNOWN))
    ]
    missing = [f"lacks {{{{{name}}}}}" for name in REQUIRED if name not in used]
    return unknown + missing


def render(
    template: str, session: Session, transcript: Transcript, profile: Profile, *, nonce: str
) -> str:
    """The prompt for this session. All that comes from the session stands inside fences."""
    values = _values(session, transcript, profile, nonce)
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _values(
    session: Session, transcript: Transcript, profile: Profile, nonce: str
) -> Mapping[str, str]:
    return {
        "SESSION_CONVERSATION": fence("TRANSCRIPT", nonce, transcript.text),
        "ALERT_DATA": fence("ALERT", nonce, encode(dict(session.alert_data))),
        "AVAILABLE_TOOLS": fence("TOOLS", nonce, tools_text(session.available_tools)),
        "FINAL_ANALYSIS": fence("FINAL ANALYSIS", nonce, encode(session.final_analysis)),
        "RUNBOOK": fence("RUNBOOK", nonce, encode(session.runbook_url)),
        "TOOL_REPORT": fence("TOOL REPORT", nonce, tool_report_text(session)),
        "CRITERIA": criteria_text(profile),
        "OUTPUT_SCHEMA": json.dumps(output_schema(profile), indent=1),
    }


def criteria_text(profile: Profile) -> str:
    """The judge's criteria, each with its points and what it means."""
    return "\n\n".join(
        f"### {c.id}: {c.name or c.id} (0 to {c.max_points} points)\n{c.description}".rstrip()
        for c in profile.judge_criteria
    )


def correction(problems: list[str]) -> str:
    """What is said to a judge whose answer could not be accepted."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return (
        "Your answer could not be accepted:\n"
        f"{listed}\n"
        "Answer again with one complete JSON object that follows the schema, and nothing else."
    )
