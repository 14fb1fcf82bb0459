"""The judge's prompt: a template with placeholders, filled in one pass.

One pass means that a placeholder inside a transcript stays the text that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache

from consumer.scoring.profile import Profile
from consumer.scoring.scorers.base import Subject
from consumer.scoring.tool_report import ToolReport
from consumer.scoring.transcript import (
    Transcript,
    encode,
    fence,
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
    template: str, subject: Subject, transcript: Transcript, profile: Profile, *, nonce: str
) -> str:
    """The prompt for this session. All that comes from the session stands inside fences."""
    return fill(template, frame(subject, profile, nonce=nonce), transcript, nonce=nonce)


def fill(template: str, frame: Mapping[str, str], transcript: Transcript, *, nonce: str) -> str:
    """The prompt with this transcript in what is around it."""
    values = {**frame, "SESSION_CONVERSATION": _conversation(transcript, nonce)}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def frame(subject: Subject, profile: Profile, *, nonce: str) -> Mapping[str, str]:
    """What stands around the transcript, by placeholder. It may be long: an alert has any size."""
    session = subject.session
    return {
        "ALERT_DATA": fence("ALERT", nonce, encode(dict(session.alert_data))),
        "AVAILABLE_TOOLS": fence("TOOLS", nonce, tools_text(session.available_tools)),
        "FINAL_ANALYSIS": fence("FINAL ANALYSIS", nonce, encode(session.final_analysis)),
        "RUNBOOK": fence("RUNBOOK", nonce, encode(session.runbook_url)),
        "TOOL_REPORT": fence("TOOL REPORT", nonce, tool_report_text(subject.report)),
        "CRITERIA": criteria_text(profile),
        "OUTPUT_SCHEMA": schema_text(profile),
    }


def _conversation(transcript: Transcript, nonce: str) -> str:
    """The fenced transcript. What the program has to say of it stands before the fence."""
    fenced = fence("TRANSCRIPT", nonce, transcript.text)
    return f"{transcript.note}\n{fenced}" if transcript.note else fenced


@lru_cache(maxsize=64)
def schema_text(profile: Profile) -> str:
    """The schema of the verdict, to be read by the judge."""
    return json.dumps(output_schema(profile), indent=1)


def tool_report_text(report: ToolReport) -> str:
    """The tool report in figures, on one line."""
    return encode(
        {
            "calls": report.calls,
            "failed": [{"tool": call.tool, "failure": call.failure} for call in report.failed],
            "repeated": [{"tool": r.tool_name, "calls": len(r.call_ids)} for r in report.repeated],
            "wasted": [{"tool": call.tool, "reason": call.reason} for call in report.wasted],
            "available_but_unused": list(report.unused_tools),
        }
    )


def criteria_text(profile: Profile) -> str:
    """The judge's criteria, each with its points and what it means; then the disqualifiers."""
    parts = [
        f"### {c.id}: {c.name or c.id} (0 to {c.max_points} points)\n{c.description}".rstrip()
        for c in profile.judge_criteria
    ]
    if profile.judge_disqualifiers:
        listed = "\n".join(f"- {text}" for text in profile.judge_disqualifiers)
        parts.append(
            "### Disqualifiers\nIf one of these is the case, disqualified is true and "
            f"disqualifier_triggered repeats it word for word:\n{listed}"
        )
    return "\n\n".join(parts)


def correction(problems: list[str]) -> str:
    """What is said to a judge whose answer could not be accepted."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return (
        "Your answer could not be accepted:\n"
        f"{listed}\n"
        "Answer again with one complete JSON object that follows the schema, and nothing else."
    )
