"""Are the numbers, names and citations of the analysis in the evidence? Formulas: scoring.md.

Evidence is what the agent was given or found: `Subject.evidence`. Each number and each name counts
once, however often it is repeated. TARSy's frame around the analysis (header and footer) is not the
agent's. All patterns consume what they match and look back a fixed number of characters, so the
time is linear in the texts; of the evidence, only what the analysis mentions is kept in memory.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from consumer.scoring.scorers.base import (
    Measured,
    NotApplicable,
    Params,
    Result,
    Subject,
    in_analysis,
)

Spot = tuple[int, int]
# A number's readings (512Mi: 512 and 536870912), and whether it is a percentage.
Claim = tuple[tuple[float, ...], bool]

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
    *("sep", "sept", "oct", "nov", "dec", "年", "月", "日"),
)
PARTS = ("section", "step", "stage", "phase", "part", "chapter", "figure", "table", "appendix")
TERMS = ("sha256", "base64", "oauth2", "log4j", "utf-8", "sha-256", "node.js", "http2", "covid-19")


Words = tuple[Annotated[str, Field(min_length=1), AfterValidator(str.lower)], ...]


class NumericGrounding(Params):
    """How near is near enough, and which words make a number no claim about the world."""

    relative_tolerance: float = Field(default=0.02, ge=0, lt=1)
    percentage_points: float = Field(default=0.5, ge=0, le=100)
    date_words: Words = Field(default=MONTHS, description="next to a day of the month")
    part_words: Words = Field(default=PARTS, description="before a section number")
    own_words: Words = Field(
        default=("confidence", "confident", "certainty"),
        description="the agent's own judgement: 'Confidence: high (90 %)' is no claim",
    )


class EntityGrounding(Params):
    """`not_names` look like identifiers and are general terms (without regard to case)."""

    not_names: Words = TERMS


class CitationValidity(Params):
    """What `[n]` points at: the analysis' own list of references, or steps of the transcript."""

    sources: Literal["references", "steps"] = "references"
    headings: Words = Field(
        default=("references", "sources", "citations", "bibliography", "footnotes"),
        description="above a list of references",
    )
    attached: bool = Field(default=False, description="`word[1]` is a citation, not an index")


_ESCAPE = re.compile(r"\\(?:[nrt]|u[0-9a-fA-F]{4})")
_FRAME = re.compile(
    r"\A\s*# Alert Analysis Report\n(?:\s*\*\*[^\n]*\n)*|\*Processed through \d+ stages?\*\s*\Z"
)
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """The text with blanks for what the pattern matches: places stay where they are."""
    return pattern.sub(lambda match: " " * len(match[0]), text)


def _evidence(subject: Subject) -> str:
    """Tool results are often JSON in a string: an escaped line break is one, not the letter n."""
    return _ESCAPE.sub(" ", subject.evidence)


def _share(text: str, wrong: list[Spot], total: int) -> Measured:
    return Measured(1 - len(wrong) / total, in_analysis(text, wrong))


# --- Numbers -----------------------------------------------------------------------------------

# A run of digits and what is attached to it, not inside a word and not after "word-"; then a unit
# after a blank. The digit comes before its look-behinds, so that the search skips to digits.
_RUN = re.compile(
    r"\d(?<![\dA-Za-z_]\d)(?<![\dA-Za-z_)\]][-.@#]\d)"
    "(?:\\d{0,2}(?:[ '\u2019\u00a0\u2009\u202f]\\d{3}){1,6}(?!\\d)(?:[.,]\\d{1,9})?[A-Za-z]{0,4}"
    "|[\\dA-Za-z.,:/_\u066b\u066c\u2013-]*)"
    "(?:[ \u00a0\u202f]?(%|\uff05|\u066a|per ?cent|pct"
    "|(?:[kKMGT]i?B?|thousand|million|billion)(?![\\dA-Za-z])))?"
)
_PIECE = re.compile(
    "(\\d[\\d.,_ '\u2019\u00a0\u2009\u202f\u066b\u066c]*?)([eE][+-]?\\d{1,3})?([A-Za-z]{0,4})"
)
_SIMPLE = re.compile(r"\d{1,20}(?:\.\d{1,20})?")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}")
_DURATION = re.compile(r"(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}\b|\d{1,2}:\d{2}(?!\d)|\d{1,2}/\d{1,2}/\d{4}")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_BEFORE_YEAR = re.compile(r"[.,]?\s{1,3}(?:[^\W\d]{1,12}[.,]?\s){0,3}(?:19|20)\d\d\b")
_ORDINAL = re.compile(
    r"^[ \t>*_+-]*\d{1,3}(?:\.\d{1,3})*[.)](?=[\s*_])|^#+[ \t*_]*\d{1,3}(?:\.\d{1,3})*[.):]?(?=\s)",
    re.MULTILINE,
)
_NOT_DIGITS = str.maketrans("\u066b\u066c", ".,", "_ '\u2019\u00a0\u2009\u202f")
_SEPARATORS = re.compile("[:/\u2013-]")
_INSIDE = ("/", "\\", "@", "#", ":", ".")
_TRAILING = ".,:/_-\u2013"
_MINUS = frozenset("-\u2212")
_CURRENCIES = frozenset("$\u20ac\u00a3\u00a5")
_AROUND_WORDS = " .,\u00a0"
_BEFORE_JUDGEMENT = frozenset("(:=*|,")
_PERCENT = frozenset({"%", "\uff05", "\u066a", "percent", "per cent", "pct"})
# 3rd is an ordinal, 5pm a time.
_NO_UNITS = frozenset({"st", "nd", "rd", "th", "am", "pm", "AM", "PM"})
_MAX_DIGITS = 40
_WINDOW = 60
# Of units that scale; 15GB is meant either way. 500m are half a core, 1500ms are 1.5 s.
_FACTORS: dict[str, tuple[float, ...]] = {"m": (1e-3,), "ms": (1e-3,)}
for _n, _prefixes in enumerate(("kK", "M", "G", "T"), start=1):
    for _prefix in _prefixes:
        _FACTORS |= {_prefix: (1e3**_n,), f"{_prefix}B": (1e3**_n, 1024.0**_n)}
        _FACTORS |= {f"{_prefix}i": (1024.0**_n,), f"{_prefix}iB": (1024.0**_n,)}
_FACTORS |= {"thousand": (1e3,), "million": (1e6,), "billion": (1e9,)}


def numeric_grounding(subject: Subject, params: NumericGrounding) -> Result:
    """Numbers of the analysis that occur in the evidence, over numbers mentioned (scoring.md).

    A number occurs if the evidence has one from which it differs by at most 2 %; a percentage, if
    it differs by at most 0.5 points (0.95 is 95 %). 512Mi is 512 and 536870912; 1,234 is 1234.
    No claims: years, dates, times, list ordinals and section numbers, versions, addresses, hashes
    and other identifiers with digits, and the agent's own confidence.
    """
    text = _blank(_FRAME, subject.analysis)
    claims: dict[Claim, Spot] = {}
    for claim, spot in _claims(text, params):
        claims.setdefault(claim, spot)
    if not claims:
        return NotApplicable("the analysis mentions no numbers")
    plain = _Wanted(value for values, percent in claims if not percent for value in values)
    percents = _Wanted(value for values, percent in claims if percent for value in values)
    _compare(_evidence(subject), plain, percents, params)
    found = {False: plain.found(), True: percents.found()}
    wrong = [spot for (values, pct), spot in claims.items() if found[pct].isdisjoint(values)]
    return _share(text, wrong, len(claims))


class _Wanted:
    """Sorted values, and which of them ranges covered. A range costs one search, however wide."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(set(values))
        self.steps = [0] * (len(self.values) + 1)

    def cover(self, value: float, tolerance: float) -> None:
        # Binary floating point must not turn 98 away from 100 +- 2.
        tolerance += 1e-9 * abs(value)
        self.steps[bisect_left(self.values, value - tolerance)] += 1
        self.steps[bisect_right(self.values, value + tolerance)] -= 1

    def found(self) -> set[float]:
        covers = accumulate(self.steps)
        return {value for value, count in zip(self.values, covers, strict=False) if count}


def _compare(evidence: str, plain: _Wanted, percents: _Wanted, params: NumericGrounding) -> None:
    """Cover what the evidence's numbers are near to."""
    for match in _RUN.finditer(evidence):
        negative = evidence[match.start() - 1 : match.start()] in _MINUS
        for value, is_fraction in _evidence_values(match[0], match[1] or "", negative):
            plain.cover(value, abs(value) * params.relative_tolerance)
            if percents.values:
                percents.cover(value, params.percentage_points)
            if percents.values and is_fraction:
                percents.cover(100 * value, params.percentage_points)


@lru_cache(maxsize=1 << 16)
def _evidence_values(run: str, tail: str, negative: bool) -> tuple[tuple[float, bool], ...]:
    """Every value that a run of the evidence may mean, and whether it may be a share of 1."""
    if _SIMPLE.fullmatch(run) and not negative:  # most are; the rest of this takes ten times longer
        return ((float(run), "." in run and float(run) <= 1),)
    run = run.removesuffix(tail).rstrip(_TRAILING)
    pieces = [run] if _PIECE.fullmatch(run) else _SEPARATORS.split(run)
    if _DATE.match(run) or ("-" in run and len(pieces) > 2):
        return ()
    values: list[float] = []
    fractions: set[float] = set()
    for piece in pieces:
        if match := _PIECE.fullmatch(piece):
            own = _readings(match, tail)
            # A list without blanks looks like one number with thousands separators.
            listed = re.split(r"[^\d.]", match[1])
            parts = (_figure(part) for part in listed if part and len(listed) > 1)
            values += own + [part for part in parts if part is not None]
            fractions |= {value for value in own if "." in piece and value <= 1}
        elif _DURATION.fullmatch(piece):
            values += [float(part) for part in re.findall(r"\d{1,9}", piece)]
    if tail in _PERCENT:
        values += [value / 100 for value in values]
    signs = (1, -1) if negative else (1,)
    return tuple({(sign * value, value in fractions) for value in values for sign in signs})


def _claims(text: str, params: NumericGrounding) -> Iterator[tuple[Claim, Spot]]:
    text = _blank(_ORDINAL, text)
    for match in _RUN.finditer(text):
        start, tail = match.start(), match[1] or ""
        run = match[0].removesuffix(tail).rstrip(_TRAILING)
        before = text[max(0, start - _WINDOW) : start]
        after = text[start + len(run) : start + len(run) + _WINDOW]
        if before.endswith(_INSIDE) or _no_claim(run, tail, before, after, params):
            continue
        sign = -1 if before[-1:] in _MINUS else 1
        for piece in _claimed(run):
            if readings := _readings(piece, tail):
                values = tuple(sign * value for value in readings)
                yield (values, tail in _PERCENT), match.span()


def _no_claim(run: str, tail: str, before: str, after: str, params: NumericGrounding) -> bool:
    """Whether it is a year, an ordinal ("Card 2:"), an own judgement, or a day of the month."""
    if _YEAR.fullmatch(run) and not tail and before[-1:] not in _CURRENCIES:
        return True
    if _ends_with(before, params.part_words) or (len(run) <= 2 and after.startswith(":")):
        return True
    if tail in _PERCENT or run.startswith("0.") or "/" in run:
        return _own_judgement(before, after, params.own_words)
    dates = params.date_words
    near_date = _ends_with(before, dates) or _starts_with(after, dates) or _BEFORE_YEAR.match(after)
    return bool(near_date and _DAY.fullmatch(run))


def _ends_with(before: str, words: tuple[str, ...]) -> bool:
    """Whether the last word is one of these, or its plural."""
    text = before.rstrip(_AROUND_WORDS).lower()
    for end in (text, text.removesuffix("s")):
        if end.endswith(words):
            return any(
                end.endswith(word) and not end[: -len(word)][-1:].isalpha() for word in words
            )
    return False


def _starts_with(after: str, words: tuple[str, ...]) -> bool:
    text = after.lstrip(_AROUND_WORDS).lower()
    return text.startswith(words) and any(
        text.startswith(word) and not re.match("[a-z]", text[len(word) :]) for word in words
    )


def _own_judgement(before: str, after: str, words: tuple[str, ...]) -> bool:
    """90 % confidence; confidence is 90 %; Confidence: very high (90 %)."""
    if after.lstrip(_AROUND_WORDS + "%*").lower().startswith(words):
        return True
    line = before.rpartition("\n")[2].lower()
    for word in words:
        _, said, between = line.rpartition(word)
        if said and not any(map(str.isdigit, between)):
            return len(between.split()) <= 1 or between.rstrip()[-1:] in _BEFORE_JUDGEMENT
    return False


def _claimed(run: str) -> list[re.Match[str]]:
    """The numbers of a run: one, or two of a range; none of an identifier, date or time."""
    if whole := _PIECE.fullmatch(run):
        return [whole]
    pieces = _SEPARATORS.split(run)
    if ":" in run or len(pieces) > 2 or _DATE.match(run):
        return []
    # 200MB/s and 3-node: the letters are a unit.
    matches = [_PIECE.fullmatch(piece) for piece in pieces if not piece.isalpha()]
    return [match for match in matches if match] if all(matches) else []


def _readings(piece: re.Match[str], tail: str) -> list[float]:
    """The number as written, and scaled by its unit. None if it is an ordinal or no number."""
    value = _figure(piece[1])
    if value is None or piece[3] in _NO_UNITS:
        return []
    value *= float(f"1{piece[2] or 'e0'}")
    factors = (1.0, *_FACTORS.get(piece[3] or tail, ()))
    return [value * factor for factor in factors if isfinite(value * factor)]


def _figure(written: str) -> float | None:
    """1,234.5 and 1.234,5 and 1 234 and 0,5; None for 1.2.3, and for what no double can hold."""
    digits = written.translate(_NOT_DIGITS)
    if "," in digits and digits.rfind(".") < digits.rfind(","):
        grouped = "." not in digits and _GROUPED.fullmatch(digits)
        digits = digits.replace(".", "").replace(",", "" if grouped else ".")
    digits = digits.replace(",", "")
    return float(digits) if len(digits) <= _MAX_DIGITS and digits.count(".") <= 1 else None


# --- Names -------------------------------------------------------------------------------------

_TOKEN = re.compile("[A-Za-z0-9_/\u00c0-\u052f][A-Za-z0-9_\u00c0-\u052f.:/@-]*")
_QUOTED = re.compile(r"`([^`\n]+)`")
_JOINED = re.compile(r"\w[-_./:@]\w")
_EMAIL = re.compile(r"[^@/:]+@[^@/:]+\.[^@/:]+")
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_IPV6 = re.compile(r"(?=.*::|(?:[^:]*:){5})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}")
_TIME = re.compile(r"[\dTZ:.,/-]+")
_QUANTITY = re.compile(r"\d[\d.,]*[A-Za-z]{0,4}(?:-[A-Za-z-]+)?|[vV]?\d+(?:\.\d+)+[\w.-]*")
_DOTTED = re.compile(r"[\w-]{2,}(?:\.[\w-]+)*\.[a-z][a-z0-9]{1,9}")
_JOINTS = re.compile(r"[/:@]+")
_GAP = re.compile(r"\s")
_EDGES = ".:-/@_"
_MIN_NAME = 5
_MAX_PARTS = 8
_CHUNK = 1 << 20


def entity_grounding(subject: Subject, params: EntityGrounding) -> Result:
    """Names of the analysis that occur in the evidence, over those mentioned (scoring.md).

    A name is a URL, path, host, address, file, or a word of five characters or more that mixes
    letters and digits or has an underscore; in `code`, also words held together by punctuation.
    Plain words, quantities, versions, times and the agent's tools are not. It occurs if the
    evidence has it, or the beginning or end of a longer name (a pod's of its replica set), without
    regard to case; host/path, image:tag and user@host also occur if each part does.
    """
    text = _blank(_FRAME, subject.analysis)
    names = _names(text, _tool_names(subject) | set(params.not_names))
    if not names:
        return NotApplicable("the analysis mentions no identifiers")
    parts = {name: _parts(name) for name in names}
    wanted = names.keys() | {part for own in parts.values() for part in own}
    found = _occurring(_evidence(subject), wanted)
    wrong = [
        spot
        for name, spot in names.items()
        if name not in found and not (parts[name] and found.issuperset(parts[name]))
    ]
    return _share(text, wrong, len(names))


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
        or _DURATION.fullmatch(part)
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
    start = 0
    while start < len(evidence) and missing:
        gap = _GAP.search(evidence, start + _CHUNK)
        end = gap.start() if gap else len(evidence)
        for token in set(_TOKEN.findall(evidence[start:end].lower())):
            found.update(missing.intersection(_forms(token)))
        missing -= found
        start = end
    return found


def _forms(token: str) -> Iterator[str]:
    """A token, its parts, and their beginnings and ends."""
    bare = token.strip(_EDGES)
    yield bare
    for part in _JOINTS.split(bare):
        yield part
        cuts = [n for n, character in enumerate(part) if character in ".-"]
        if len(cuts) < _MAX_PARTS:
            for cut in cuts:
                yield part[:cut]
                yield part[cut + 1 :]


# --- Citations ---------------------------------------------------------------------------------

_CITATION = re.compile(r"\[\^?(\d{1,9}(?:\s?[,;\u2013-]\s?\^?\d{1,9})*)\](?!\()")
_ENTRY = re.compile(r"[ \t>*+-]*(?:\[\^?(\d{1,9})\](:?)|(\d{1,9})[.)])[ \t]*\S")
_WORD = re.compile(r"[A-Za-z0-9_]")
_HEADING = re.compile(r"\s*#+\s|\s*\*\*[^*]*\*\*:?\s*\Z")
_AROUND_TITLE = "#*_:>. \t\r0123456789"


def citation_validity(subject: Subject, params: CitationValidity) -> Result:
    """`[n]` citations that point at an existing source, over citations (scoring.md).

    [1, 2] are two; [1-3] is one, of three sources. Links, checkboxes, code and indices (`word[0]`)
    are no citations; nor are the entries of the list of references itself.
    """
    text = _blank(_CODE, _blank(_FRAME, subject.analysis))
    numbers, entries = _references(text, params.headings)
    if params.sources == "steps":
        numbers = set(range(1, 1 + sum(1 for _ in subject.session.steps)))
    sources = sorted(numbers)
    citations = list(_citations(text, entries, params.attached))
    if not citations:
        return NotApplicable("the analysis cites nothing")
    wrong = [spot for low, high, spot in citations if not _all_exist(sources, low, high)]
    return _share(text, wrong, len(citations))


def _all_exist(sources: list[int], low: int, high: int) -> bool:
    return bisect_right(sources, high) - bisect_left(sources, low) == high - low + 1 > 0


def _references(text: str, headings: tuple[str, ...]) -> tuple[set[int], set[int]]:
    """Numbers of the references, and where those written [n] stand.

    `[n]: ...` is one anywhere; `[n] ...`, `n. ...` and `n) ...` are under one of the headings.
    """
    titles = set(headings)
    numbers, entries = set[int](), set[int]()
    inside, offset = False, 0
    for line in text.split("\n"):
        if line.strip(_AROUND_TITLE).lower() in titles:
            inside = True
        elif _HEADING.match(line):
            inside = False
        elif (entry := _ENTRY.match(line)) and (inside or entry[2]):
            numbers.add(int(entry[1] or entry[3]))
            entries.add(offset + entry.start(1))
        offset += len(line) + 1
    return numbers, entries


def _citations(text: str, entries: set[int], attached: bool) -> Iterator[tuple[int, int, Spot]]:
    """Each as (first source, last source), and where it stands."""
    end_of_last = -1
    for match in _CITATION.finditer(text):
        start = match.start()
        before = text[start - 1 : start] if start else ""
        index = before in {"]", ")"} or (_WORD.match(before) and not attached)
        if match.start(1) in entries or (index and start != end_of_last):
            continue
        end_of_last = match.end()
        for item in re.split("[,;]", match[1]):
            ends = [int(end.strip(" ^")) for end in re.split("[\u2013-]", item)]
            yield ends[0], ends[-1], match.span()
