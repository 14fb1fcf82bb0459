"""Do the citations of the analysis point at something? Formula: docs/scoring.md."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from consumer.scoring.scorers.base import NotApplicable, Params, Result, Subject
from consumer.scoring.scorers.grounding import CITATION, Words, share
from consumer.scoring.text import Spot, blank


class CitationValidity(Params):
    """What `[n]` points at: the analysis' own list of references, steps of the transcript, or the
    entries of a list in the alert's data, at `data_path` (keys joined by dots).
    """

    sources: Literal["references", "steps", "data"] = "references"
    data_path: str = Field(default="", max_length=500)
    headings: Words = Field(
        default=("references", "sources", "citations", "bibliography", "footnotes"),
        description="above a list of references",
    )
    attached: bool = Field(default=False, description="`word[1]` is a citation, not an index")

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if (self.sources == "data") != bool(self.data_path):
            raise ValueError("sources: data and data_path go together: give both or neither")
        return self


_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)

_ENTRY = re.compile(r"[ \t>*+-]*(?:\[\^?(\d{1,9})\](:?)|(\d{1,9})[.)])[ \t]*\S")
_WORD = re.compile(r"[A-Za-z0-9_]")
_HEADING = re.compile(r"\s*#+\s|\s*\*\*[^*]*\*\*:?\s*\Z")
_AROUND_TITLE = "#*_:>. \t\r0123456789"

NO_CITATION = NotApplicable("the analysis cites nothing")


def citation_validity(subject: Subject, params: CitationValidity) -> Result:
    """`[n]` citations that point at an existing source, over citations (docs/scoring.md).

    [1, 2] are two; [1-3] is one, of three sources. Links, checkboxes, code and indices (`word[0]`)
    are no citations; nor are the entries of the list of references itself.
    """
    if "[" not in subject.analysis:  # most analyses: spares the rest
        return NO_CITATION
    text = blank(_CODE, subject.own_text)
    numbers, entries = _references(text, params.headings)
    if params.sources != "references":
        numbers = set(range(1, 1 + _count(subject, params)))
    sources = sorted(numbers)
    citations = list(_citations(text, entries, params.attached))
    if not citations:
        return NO_CITATION
    wrong = [spot for low, high, spot in citations if not _all_exist(sources, low, high)]
    return share(text, wrong, len(citations))


def _count(subject: Subject, params: CitationValidity) -> int:
    """How many steps, or entries of the list, there are; 0 where there is no such list."""
    if params.sources == "steps":
        return len(subject.session.steps)
    found: Any = subject.session.alert_data
    for key in params.data_path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return len(found) if isinstance(found, list | tuple | Mapping) else 0


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
    for match in CITATION.finditer(text):
        start = match.start()
        before = text[start - 1 : start] if start else ""
        index = before in {"]", ")"} or (_WORD.match(before) and not attached)
        if match.start(1) in entries or (index and start != end_of_last):
            continue
        end_of_last = match.end()
        for item in re.split("[,;]", match[1]):
            ends = [int(end.strip(" ^")) for end in re.split("[\u2013-]", item)]
            yield ends[0], ends[-1], match.span()
