"""Are the names of the analysis in the evidence? Formula: docs/scoring.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import repeat

from consumer.scoring.quantities import DURATION
from consumer.scoring.scorers.base import NotApplicable, Params, Result, Subject
from consumer.scoring.scorers.grounding import Words, share
from consumer.scoring.text import LETTERS_AND_DIGITS, Spot, only, runs

TERMS = ("sha256", "base64", "oauth2", "log4j", "utf-8", "sha-256", "node.js", "http2", "covid-19")


class EntityGrounding(Params):
    """`not_names` look like identifiers and are general terms (without regard to case)."""

    not_names: Words = TERMS


_TOKEN = re.compile("[A-Za-z0-9_/\u00c0-\u052f][A-Za-z0-9_\u00c0-\u052f.:/@-]*")
# What the tokens of most texts are made of; the others' have accented letters.
_IN_TOKENS = only(LETTERS_AND_DIGITS + ".:/@-")
_ACCENTED = re.compile("[\u00c0-\u052f]")
_REST = re.compile("[A-Za-z0-9_\u00c0-\u052f.:/@-]+")
_TOKEN_CHARACTERS = LETTERS_AND_DIGITS + ".:/@-" + "".join(map(chr, range(0xC0, 0x530)))
_QUOTED = re.compile(r"`([^`\n]+)`")
_JOINED = re.compile(r"\w[-_./:@]\w")
_EMAIL = re.compile(r"[^@/:]+@[^@/:][^@/:.]*\.[^@/:]+")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_IPV6 = re.compile(r"(?=.*::|(?:[^:]*:){5})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}")
_TIME = re.compile(r"[\dTZ:.,/-]+")
_QUANTITY = re.compile(r"\d[\d.,]*[A-Za-z]{0,4}(?:-[A-Za-z-]+)?|[vV]?\d+\.\d[\w.-]*")
_DOTTED = re.compile(r"[\w-]{2,}(?:\.[\w-]+)*\.[a-z][a-z0-9]{1,9}")
_JOINTS = re.compile(r"[/:@]+")
_CUT = re.compile("[-./:@]")
_GAP = re.compile(r"\s")
_EDGES = ".:-/@_"
_MIN_NAME = 5
_MAX_PARTS = 8
_CHUNK = 1 << 20
# To look for so few, one after the other, takes less time than to read all tokens.
_FEW = 8


def entity_grounding(subject: Subject, params: EntityGrounding) -> Result:
    """Names of the analysis that occur in the evidence, over those mentioned (docs/scoring.md).

    A name is a URL, path, host, address, file, or a word of five characters or more that mixes
    letters and digits or has an underscore; in `code`, also words held together by punctuation.
    Plain words, quantities, versions, times and the agent's tools are not. It occurs if the
    evidence has it, or the beginning or end of a longer name (a pod's of its replica set), without
    regard to case; host/path, image:tag and user@host also occur if each part does.
    """
    text = subject.own_text
    names = _names(text, set(params.not_names))
    if names:
        for known in names.keys() & _tool_names(subject):
            del names[known]
    if not names:
        return NotApplicable("the analysis mentions no identifiers")
    parts = {name: _parts(name) for name in names}
    wanted = names.keys() | {part for own in parts.values() for part in own}
    found = _occurring(subject.evidence, wanted)
    wrong = [
        spot
        for name, spot in names.items()
        if name not in found and not (parts[name] and found.issuperset(parts[name]))
    ]
    return share(text, wrong, len(names))


def _tool_names(subject: Subject) -> set[str]:
    session = subject.session
    named = {(tool.server, tool.name) for tool in session.available_tools}
    named |= {(call.server, call.tool) for call in session.tool_calls}
    return {n.lower() for server, tool in named for n in (server, tool, f"{server}.{tool}")}


def _names(text: str, known: set[str]) -> dict[str, Spot]:
    """Each name in lower case, and where it first stands."""
    names: dict[str, Spot] = {}
    quoted = {
        m.span() for span in _QUOTED.finditer(text) for m in _TOKEN.finditer(text, *span.span(1))
    }
    for match in _TOKEN.finditer(text):
        bare = match[0].strip(_EDGES)
        if bare.isalpha():  # a plain word, as most are
            continue
        in_code = match.span() in quoted and _JOINED.search(bare)
        if (in_code or _is_name(match[0], bare)) and bare.lower() not in known:
            names.setdefault(bare.lower(), match.span())
    return names


def _is_name(token: str, bare: str) -> bool:
    if "://" in bare or _EMAIL.fullmatch(bare) or _IPV6.fullmatch(bare):
        return True
    if token.startswith("/") and "/" in bare:
        return True
    return any(_is_identifier(part) for part in _JOINTS.split(bare)) and not (
        _TIME.fullmatch(bare) and not _IPV4.match(bare)
    )


def _is_identifier(part: str) -> bool:
    if _IPV4.fullmatch(part):
        return True
    letters = any(map(str.isalpha, part))
    if (
        len(part) < _MIN_NAME
        or not letters
        or _QUANTITY.fullmatch(part)
        or DURATION.fullmatch(part)
    ):
        return False
    return "_" in part.strip("_") or any(map(str.isdigit, part)) or bool(_DOTTED.fullmatch(part))


def _parts(name: str) -> tuple[str, ...]:
    """What a name is put together from; nothing where the parts prove nothing."""
    if _IPV6.fullmatch(name):
        return ()
    return tuple(part for part in _JOINTS.split(name) if part not in {"", "http", "https"})


def _occurring(evidence: str, wanted: Iterable[str]) -> set[str]:
    """Those wanted that the evidence has, read piece by piece to keep memory small."""
    missing, found = set(wanted), set[str]()
    ends = {end for name in missing for end in _CUT.split(name)}
    start = 0
    while start < len(evidence) and missing:
        gap = _GAP.search(evidence, start + _CHUNK)
        end = gap.start() if gap else len(evidence)
        tokens = set(map(str.strip, _tokens(evidence[start:end].lower(), missing), repeat(_EDGES)))
        found |= missing & tokens
        for token in filter(_CUT.search, tokens):
            # Whatever begins or ends with a part of the token is split where the token is.
            if not ends.isdisjoint(_CUT.split(token)):
                found.update(missing.intersection(_forms(token)))
        missing -= found
        start = end
    return found


def _tokens(text: str, wanted: set[str]) -> set[str]:
    """The text's tokens, at least those that hold one of the names wanted."""
    if len(wanted) <= _FEW:
        return {token for name in wanted for token in _holding(text, name)}
    accented = not text.isascii() and _ACCENTED.search(text)
    return set(_TOKEN.findall(text) if accented else runs(text, _IN_TOKENS))


def _holding(text: str, name: str) -> Iterator[str]:
    end, at = 0, text.find(name)
    while at >= 0 and (rest := _REST.match(text, at)):
        start = end + len(text[end:at].rstrip(_TOKEN_CHARACTERS))
        end = rest.end()
        yield text[start:end]
        at = text.find(name, end)


def _forms(token: str) -> Iterator[str]:
    """A token's parts, and their beginnings and ends."""
    for part in _JOINTS.split(token):
        yield part
        cuts = [n for n, character in enumerate(part) if character in ".-"]
        if len(cuts) < _MAX_PARTS:
            for cut in cuts:
                yield part[:cut]
                yield part[cut + 1 :]
