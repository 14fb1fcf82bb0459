"""The criteria hash: one name for everything that can change a score."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import rfc8785

from consumer.scoring.profile import Profile
from consumer.scoring.verdict import SCHEMA_VERSION, output_schema

# Raised whenever a formula or a default of a profile changes: the same one then scores otherwise.
SCORING_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What about the judges can change a score. Keys, URLs, limits and timeouts can't.

    `seats`: (provider, model) of each judge.
    """

    seats: tuple[tuple[str, str], ...]
    prompt: str
    temperature: float
    samples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """`content` as it is stored once, and its SHA-256 (hex) over RFC 8785 canonical JSON."""

    hash: str
    content: dict[str, Any]


def criteria(profile: Profile, judge: JudgeSettings | None) -> Criteria:
    """The criteria of scoring by this profile with this judge (none: rules only)."""
    content: dict[str, Any] = {
        "scoring_version": SCORING_VERSION,
        "profile": profile.body(),
    }
    if judge is not None:
        content["judge"] = {
            "seats": [{"provider": name, "model": model} for name, model in judge.seats],
            "prompt": judge.prompt,
            "temperature": judge.temperature,
            "samples": judge.samples,
            "output_schema": output_schema(profile),
            "output_schema_version": SCHEMA_VERSION,
        }
    digest = hashlib.sha256(rfc8785.dumps(content)).hexdigest()
    return Criteria(hash=digest, content=content)
