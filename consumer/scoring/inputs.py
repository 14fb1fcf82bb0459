"""What a judge's prompt was rendered from, as bytes that it can be rendered from again.

Of a score's inputs only the session is not stored elsewhere: profile, template and schema are the
criteria's, nonce and budget the sample's.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from consumer.scoring.profile import Profile
from consumer.scoring.session import Session
from consumer.scoring.verdict import output_schema

_SESSION = TypeAdapter(Session)
_ODD_TEXT = "surrogatepass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The content under its SHA-256 (hex): the same session has the same address."""

    sha256: str
    content: bytes


def inputs_of(session: Session) -> Inputs:
    """The session as JSON; whatever a session may hold, infinity and half a surrogate pair too."""
    try:
        content = to_json(session, inf_nan_mode="constants")
    except PydanticSerializationError:
        # Half a surrogate pair is no UTF-8, but the prompt came from it: kept as it is.
        text = json.dumps(_SESSION.dump_python(session), ensure_ascii=False, separators=(",", ":"))
        content = text.encode("utf-8", _ODD_TEXT)
    return Inputs(sha256=hashlib.sha256(content).hexdigest(), content=content)


def session_in(content: bytes) -> Session:
    """The session of these bytes. Raises ValueError where it is none."""
    return _SESSION.validate_python(json.loads(content.decode("utf-8", _ODD_TEXT)))


def request_sha256(*, model: str, temperature: float, profile: Profile, prompt: str) -> str:
    """One name for all that a judge is asked with, in SHA-256 (hex)."""
    head = f'{{"model": {json.dumps(model)}, "temperature": {temperature}, "schema": '
    return hashlib.sha256(f"{head}{_schema_json(profile)}}}\n{prompt}".encode()).hexdigest()


@lru_cache(maxsize=64)
def _schema_json(profile: Profile) -> str:
    return json.dumps(output_schema(profile))
