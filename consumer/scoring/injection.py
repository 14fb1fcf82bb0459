"""Which parts of a session look as if they spoke to the judge.

A flag is a hint for people who read a score: it never changes one. What keeps the judge's prompt
whole is in `transcript` and `prompt`, and needs no detector. Known phrases only: whoever words an
order in a new way is not flagged. Everything here takes time linear in the text.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Literal

from consumer.scoring import patterns as engine
from consumer.scoring.prompt import KNOWN
from consumer.scoring.scorers.base import EXCERPT_CHARACTERS, excerpt
from consumer.scoring.session import Session, Step, ToolCall
from consumer.scoring.text import storable
from consumer.scoring.transcript import INVISIBLE, fold, visible

Part = Literal["step", "alert", "runbook", "tools", "final_analysis"]
Kind = Literal["verdict", "order", "fence", "placeholder", "chat_template", "hidden", "encoded"]

# Enough to look into any session; a flood of planted flags must not flood the table.
MAX_FLAGS = 50
GROUP_CHARACTERS = 200_000
# Of a part that is longer than two of these only the ends are looked at. A judge rarely sees more.
END_CHARACTERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A suspicious part: `step` is its number in the transcript, None outside of it.

    `excerpt` is up to 160 characters on one line, with invisible characters spelled out; of text
    in base64 it is the decoded text.
    """

    part: Part
    step: int | None
    kind: Kind
    excerpt: str


find = partial(engine.find, own=True)
find_all = partial(engine.find_all, own=True)

# Where a text stands, and the text.
_Shown = tuple[Part, int | None, str]


def flags(session: Session) -> tuple[Flag, ...]:
    """One flag for each kind in each suspicious part, in the order of the session; at most 50."""
    found = (
        Flag(part=part, step=step, kind=kind, excerpt=shown)
        for group in _groups(_parts(session))
        # Most are innocent: one look at many parts is quicker than one at each.
        if _suspicious("\n.\n".join(text for _, _, text in group))
        for part, step, text in group
        for kind, shown in _suspicions(text)
    )
    return tuple(islice(found, MAX_FLAGS))


def _groups(parts: Iterable[_Shown]) -> Iterator[list[_Shown]]:
    """The parts in groups of about so many characters: nobody waits long for any of them."""
    group: list[_Shown] = []
    size = 0
    for part, step, text in parts:
        group.append((part, step, _ends(text)))
        size += len(text)
        if size > GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _ends(text: str) -> str:
    """What is looked at of a text: all, but of very long ones the beginning and the end."""
    if len(text) <= 2 * END_CHARACTERS:
        return text
    return f"{text[:END_CHARACTERS]}\n{text[-END_CHARACTERS:]}"


# --- What is looked at ---------------------------------------------------------------------------


def _parts(session: Session) -> Iterator[_Shown]:
    """All that a prompt shows of the session."""
    yield "alert", None, "\n".join(_strings(session.alert_data))
    yield "runbook", None, session.runbook_url or ""
    tools = session.available_tools
    yield "tools", None, "\n".join(f"{t.server}.{t.name}\n{t.description}" for t in tools)
    number = 0
    for stage in session.stages:
        titles = f"{stage.name}\n{stage.agent}\n"
        for step in stage.steps:
            number += 1
            yield "step", number, titles + _step_text(step)
            titles = ""  # told once: its other steps are not suspicious for their stage's name
    yield "final_analysis", None, session.final_analysis


def _step_text(step: Step) -> str:
    if isinstance(step, ToolCall):
        return "\n".join((step.name, *_strings(step.arguments), step.result, step.error or ""))
    return f"{step.role}\n{step.text}"


def _strings(value: Any) -> Iterator[str]:
    """All keys and values of a JSON value, in order; keys with quotes and colon, to be known."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, inner in reversed(item.items()):
                waiting += [inner, f'"{key}":']
        elif isinstance(item, list | tuple):
            waiting += reversed(item)
        else:
            yield str(item)


# --- What is looked for --------------------------------------------------------------------------

_LABELS = "TRANSCRIPT|ALERT|TOOLS|TOOL REPORT|FINAL ANALYSIS|RUNBOOK"
_ANY: Mapping[Kind, tuple[str, ...]] = {
    # The verdict's own keys; a plain "score" or "reasoning" is in too many tools' results.
    "verdict": (
        r"\b(score_reasoning|disqualifier_triggered|injection_suspected)\b",
        r"\b(score_breakdown|alternative_approaches|missing_tools)[\"'`*]*\s?[:=]",
        r"\bdisqualified[\"'`*]*\s?[:=]\s?(true|false)",
        r"\btotal_score[^a-z0-9]{0,6}\d",
        r"\b(total|final|overall) score( is| of)?[^a-z0-9]{1,4}(9\d|100)\b",
        r"[\"']reasoning[\"']\s?:\s?\"[^\"]*\",\s?[\"']score[\"']\s?:\s?-?\d",
        r"[\"']score[\"']\s?:\s?-?\d+,\s?[\"']reasoning[\"']\s?:",
    ),
    # The form in which the judge gets the session: its fences, and its numbered steps.
    "fence": (
        rf"<<<\s?(END\s)?({_LABELS})\b[^<>]{{0,80}}>>>",
        r"<<<\s?(END\s)?TRANSCRIPT\b",
        r"(?-i:\bEND (OF )?(THE )?(TRANSCRIPT|SESSION|UNTRUSTED DATA|UNTRUSTED CONTENT)\b)",
        r"</\s?(transcript|untrusted[_-]?(data|content)|session_conversation)\s?>",
        r"\bdata,\snot\sinstructions\b",
        r"\bbetween\sthe\stwo\slines\smarked\b",
        r"\"step\"\s?:\s?\d+,\s?\"(stage|kind)\"\s?:",
    ),
    "placeholder": (rf"(?-i:\{{\{{\s?({'|'.join(KNOWN)})\s?\}}\}})",),
    "chat_template": (
        r"<\|(im_(start|end|sep)|system|user|assistant|end|endoftext|eot_id|eom_id)\|>",
        r"<\|(begin_of_text|(start|end)_header_id|start|channel|message)\|>",
        r"(?-i:\[/?INST\])|<</?SYS>>|<(start|end)_of_turn>",
        r"(?m:^### ?(system|instructions?|assistant|human|response)( prompt| message)?(:|$))",
    ),
}
_JUDGES = "(judge|reviewer|evaluator|grader|assessor|scorer)s?"
_MARKS = "(marks?|points?|scores?|grades?)"
_BEST = "(full|highest|maximum|top|perfect)"
# Looked for in the words alone, with single blanks between them.
_ORDERS: Mapping[str, tuple[str, ...]] = {
    "English": (
        (
            r"\b(ignore|disregard|forget|override|bypass|discard) ([^ ]+ ){0,4}(your|"
            r"previous|prior|preceding|above|earlier|foregoing|system|all|any) ([^ ]+ ){0,2}"
            r"(instructions?|prompts?|directives?|rubrics?|guidelines?|grading|scoring)\b"
        ),
        r"\b(ignore|disregard|forget) (everything|anything|all) ([^ ]+ ){0,4}(above|so far|told)\b",
        r"\b(ignore|disregard) the above ?([.!?]|$)",
        rf"\b{_JUDGES}\b[^.!?]{{0,60}} you (must|should|shall|will|are to|have to|need to)\b",
        rf"\b{_JUDGES}\b[^.!?]{{0,60}} (award|{_BEST} {_MARKS})\b",
        rf"\b(award|give|grant|assign) ([^ ]+ ){{0,5}}{_BEST} {_MARKS}\b",
        (
            r"\b(score|rate|grade|judge|mark) (this|the) (session|investigation|run|agent|work|"
            r"transcript|conversation) ([^ ]+ ){0,4}(100|full|perfect|flawless|excellent|highest)\b"
        ),
        (
            r"\b(this|the) (session|investigation|transcript|conversation) ([^ ]+ ){1,3}"
            r"(approved|scored|graded|judged)\b"
        ),
        r"\byou are (now|no longer) ([^ ]+ ){0,4}(assistant|dan|bound|restricted|mode)\b",
        rf"\byou are (now|no longer) ([^ ]+ ){{0,4}}{_JUDGES}\b",
        rf"\b(pretend|imagine|act|roleplay|role play) ([^ ]+ ){{0,6}}{_JUDGES}\b",
        rf"\b(instructions?|directives?|notice|message) (to|for) (the )?([^ ]+ )?{_JUDGES}\b",
        r"\bsystem (prompt )?override\b",
        (
            r"\b(reveal|print|repeat|leak|disclose|output) ([^ ]+ ){0,3}"
            r"(system prompt|hidden instructions|instructions above)\b"
        ),
        r"\b(quote|cite) ([^ ]+ ){0,8}(as|for) (evidence|(every|each|all) criteri(on|a))\b",
    ),
    "German": (
        r"\b(ignorier|vergiss|vergesst|missacht)[^ ]* ([^ ]+ ){0,4}(anweisung|vorgabe|instruktion)",
        r"\b(volle|maximale|höchste) (punktzahl|bewertung)\b",
    ),
    "Dutch": (r"\b(negeer|vergeet) ([^ ]+ ){0,4}(instructie|aanwijzing)",),
    "French": (
        r"\b(ignore|oublie)[^ ]* ([^ ]+ ){0,4}(instruction|consigne)",
        r"\bnote maximale\b",
    ),
    "Spanish": (
        r"\b(ignor|olvid)[^ ]* ([^ ]+ ){0,4}(instrucciones|indicaciones)",
        r"\b(puntuación máxima|máxima puntuación)",
    ),
    "Portuguese": (
        r"\b(ignor|esque|desconsider)[^ ]* ([^ ]+ ){0,4}instruções",
        r"\b(pontuação|nota) máxima",
    ),
    "Italian": (
        r"\b(ignor|dimentic)[^ ]* ([^ ]+ ){0,4}istruzioni",
        r"\bpunteggio massimo\b",
    ),
    "Polish": (r"\b(zignoruj|ignoruj|zapomnij) ([^ ]+ ){0,4}(instrukcj|polece)",),
    "Russian": (
        r"(игнориру|забуд)[^ ]* ([^ ]+ ){0,4}(инструкци|указани)",
        r"(максимальн|высш)[^ ]* (балл|оценк)",
    ),
    "Turkish": (r"(talimat|yönerge)[^ ]* ([^ ]+ ){0,3}(yok say|görmezden gel|unut)",),
    "Chinese": (
        r"(忽略|无视|無視|忽視|忘记|忘記)[^ .!?]{0,10}(指示|指令|说明|說明|提示)",
        r"(给|給|打)[^ .!?]{0,6}(满分|滿分|最高分)",
    ),
    "Japanese": (r"(指示|命令|指令|プロンプト)[^ .!?]{0,6}(無視|忘れ)|満点を",),
    "Korean": (r"(지시|명령|지침)[^ ]* ([^ ]+ ){0,3}(무시|잊)",),
    "Arabic": (r"(تجاهل|انس) ([^ ]+ ){0,4}(التعليمات|الأوامر|تعليمات)",),
    "Hindi": (r"निर्देश[^ ]* ([^ ]+ ){0,4}(अनदेखा|अनदेखी|नज़रअंदाज़)",),
}
_ANYTHING = "|".join(chain.from_iterable(_ANY.values()))
_ANY_ORDER = "|".join(chain.from_iterable(_ORDERS.values()))


def _loose(pattern: str) -> str:
    """The pattern for a text whose white space is not folded: it finds all that the pattern finds
    in the folded text, and maybe more.
    """
    pattern = pattern.replace("(?m:^", "(?m:^ *").replace("|$)", "| *$)")
    pattern = re.sub(r"\\s(\?)?", lambda found: r"\s*" if found[1] else r"\s+", pattern)
    # All that may hold blanks may hold any number of them.
    pattern = re.sub(r"(\[\^[^]]*\])\{(\d),\d+\}", _unlimited, pattern)
    return re.sub(r"\[[^]]*\]| \*| \??", _any_blanks, pattern)


def _unlimited(found: re.Match[str]) -> str:
    return f"{found[1]}{'*' if found[2] == '0' else '+'}"


def _any_blanks(found: re.Match[str]) -> str:
    return {" ": " +", " ?": " *"}.get(found[0], found[0])


_LOOSE_ANYTHING, _LOOSE_ORDER = _loose(_ANYTHING), _loose(_ANY_ORDER)


def _suspicious(text: str) -> bool:
    """False only where no part of the text, alone, is suspicious."""
    return _may_speak(text) or _may_hide(text) or _speaks(_decoded(text))


def _may_speak(text: str) -> bool:
    """False only where `_speaks` is; most texts need not be folded to know that."""
    text = _unescaped(text)
    if not text.isascii():
        return _speaks(text)
    loose = find(_LOOSE_ANYTHING, text.translate(_ASCII_SPACES)) is not None
    return loose or find(_LOOSE_ORDER, _ascii_words(text)) is not None


def _speaks(text: str) -> bool:
    plain = _plain(text)
    return find(_ANYTHING, plain) is not None or find(_ANY_ORDER, _words(plain)) is not None


def _may_hide(text: str) -> bool:
    return not text.isascii() and find(f"{_HIDING}|{_EMBEDDING}", text) is not None


def _suspicions(text: str) -> Iterator[tuple[Kind, str]]:
    """Each kind that the text is suspicious of, with an excerpt."""
    yield from _spoken(text)
    if shown := _hidden(text):
        yield "hidden", shown
    if found := next(_spoken(_decoded(text)), None):
        yield "encoded", found[1]


def _spoken(text: str) -> Iterator[tuple[Kind, str]]:
    """What the text says openly."""
    plain = _plain(text)
    for kind, patterns in _ANY.items():
        if spot := find("|".join(patterns), plain):
            yield kind, excerpt(plain, *spot)
    words = _words(plain)
    if spot := find(_ANY_ORDER, words):
        yield "order", excerpt(words, *spot)


# All but letters, digits, the ends of sentences, the vowel signs of Arabic and Indic scripts, and
# the underscores inside of names.
_SEPARATORS = re.compile(r"(?:[^\w.!?\u0610-\u06ed\u0900-\u0dff]|\b_|_\b|__)+")
_ASCII_SEPARATORS = {
    code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_.!?")
}
# A literal first, which `re` looks for quickly.
_EDGES_OF_NAMES = re.compile(r"_(?:_+|(?<![A-Za-z0-9]_)|(?![A-Za-z0-9]))")


def _words(plain: str) -> str:
    """The words, with single blanks between them."""
    if not plain.isascii():
        return _SEPARATORS.sub(" ", plain)
    return _single(" ", _ascii_words(plain)).strip()


def _ascii_words(text: str) -> str:
    """The words, with any number of blanks between them."""
    return _EDGES_OF_NAMES.sub(" ", text.translate(_ASCII_SEPARATORS))


def _single(character: str, text: str) -> str:
    """Every run of the character as one of it. Much quicker than to split and join."""
    while character * 2 in text:
        text = text.replace(character * 2, character)
    return text


# Superscript, letter-like, circled, ligatures, full-width, mathematical letters, each as the plain
# ones. Letter by letter: normalising a whole text takes quadratic time on a row of accents.
_VARIANTS = (
    (0x2070, 0x209F),
    (0x2100, 0x214F),
    (0x2460, 0x24FF),
    (0xFB00, 0xFB06),
    (0xFF01, 0xFF5E),
    (0x1D400, 0x1D7FF),
)
_COMPATIBLE = {
    code: unicodedata.normalize("NFKC", chr(code))
    for first, last in _VARIANTS
    for code in range(first, last + 1)
}
# Most texts that are not ASCII hold neither variants nor invisible characters; to look is quick.
_ODD = "[" + "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in _VARIANTS) + INVISIBLE + "]"
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def _unescaped(text: str) -> str:
    """The text without escapes: tool results are often JSON in a string, whose escapes a judge
    reads as easily as the text.
    """
    if "\\" not in text:
        return text
    text = _UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    for line_break in (r"\n", r"\r", r"\t"):
        text = text.replace(line_break, "\n")
    return text.replace("\\", "")


def _plain(text: str) -> str:
    """The text's lines, without escapes, invisible characters and typographic variants."""
    text = _unescaped(text)
    if text.isascii():
        return _folded_ascii(storable(text))
    if find(_ODD, text):
        text = visible(text).translate(_COMPATIBLE)
    return "\n".join(filter(None, map(fold, storable(text).splitlines())))


# What str.split and str.splitlines take for white space and for the end of a line.
_ASCII_SPACES = {ord(c): " " if c in "\t\x1f" else "\n" for c in "\t\x1f\r\x0b\x0c\x1c\x1d\x1e"}


def _folded_ascii(text: str) -> str:
    """As above, by what is quick."""
    text = _single(" ", text.translate(_ASCII_SPACES))
    return _single("\n", text.replace("\n ", "\n").replace(" \n", "\n")).strip(" \n")


# --- Base64 --------------------------------------------------------------------------------------

# 20 characters are 15 bytes: no order is shorter. Lines may be broken, as mail does.
_DIGIT = "[A-Za-z0-9+/_-]"
_BASE64 = rf"{_DIGIT}{{20,}}(?:\r?\n{_DIGIT}{{20,}})*(?:\r?\n{_DIGIT}{{1,19}}\b)?"
# Nearly all that is text has capitals in base64; hashes and names of pods have none.
_WITH_CAPITALS = "|".join(f"[a-z0-9+/_-]{{{n}}}[A-Z]{_DIGIT}{{{19 - n}}}" for n in range(20))
_WITH_CAPITALS += "|[a-z0-9+/_-]{20}[a-z0-9+/_-]*[A-Z]"


def _decoded(text: str) -> str:
    """What is base64 in the text, decoded once; noise where it only looked like base64."""
    if find(_WITH_CAPITALS, text, match_case=True) is None:
        return ""
    runs = (text[start:end] for start, end in find_all(_BASE64, text))
    return "\n".join(_decode(run) for run in runs if run != run.lower())


def _decode(encoded: str) -> str:
    standard = "".join(encoded.split()).replace("-", "+").replace("_", "/")
    whole = standard[: len(standard) - (len(standard) % 4 == 1)]  # one digit more is no byte
    decoded = base64.b64decode(whole + "=" * (-len(whole) % 4))
    # PowerShell encodes UTF-16: plain letters, each with a zero byte.
    return decoded.replace(b"\0", b"").decode(errors="replace")


# --- Hidden text ---------------------------------------------------------------------------------

_ZERO_WIDTH = r"\x{200b}-\x{200f}\x{2060}-\x{2064}\x{feff}\x{180b}-\x{180e}\x{034f}"
_FILLERS = r"\x{115f}\x{1160}\x{3164}\x{ffa0}"
_VARIATION_SELECTORS = r"\x{fe00}-\x{fe0f}\x{e0100}-\x{e01ef}"
_HIDING = "|".join(
    (
        # Tags spell out whole sentences that no display shows.
        r"[\x{e0000}-\x{e007f}]",
        # An override shows text in an order that is not the one a model reads.
        r"[\x{202d}\x{202e}]",
        # One or two joiners and selectors make an emoji; a longer row carries bits.
        f"[{_ZERO_WIDTH}{_FILLERS}{_VARIATION_SELECTORS}]{{4,}}",
        # W-o-r-d-s taken apart. A single one may be left over from a web page.
        r"([A-Za-z][\x{200b}-\x{200d}\x{2060}-\x{2064}\x{feff}]){3}",
    )
)
_EMBEDDING = r"[\x{202a}\x{202b}\x{2066}-\x{2068}]"
_RIGHT_TO_LEFT = r"[\p{Arabic}\p{Hebrew}\p{Syriac}\p{Thaana}\p{Nko}]"
_TAGS = 0xE0000
# The only emoji made of tags: the flags of England, Scotland and Wales.
_TAG_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(_TAGS + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)


def _hidden(text: str) -> str | None:
    """An excerpt of where the text holds what a display would not show; None if it does not.

    Emoji, marks in right-to-left scripts, and what web pages leave behind are as they should be.
    """
    if text.isascii():
        return None
    for flag in _TAG_FLAGS:
        text = text.replace(flag, "")
    spot = find(_HIDING, text)
    if spot is None and find(_RIGHT_TO_LEFT, text) is None:
        spot = find(_EMBEDDING, text)
    return _spelled_out(text, spot[0]) if spot else None


def _spelled_out(text: str, start: int) -> str:
    cut = text[max(0, start - EXCERPT_CHARACTERS // 4) : start + EXCERPT_CHARACTERS]
    return fold("".join(map(_shown, storable(cut))))[:EXCERPT_CHARACTERS]


def _shown(character: str) -> str:
    """The character; an invisible one's letter where it is a tag, else its code point."""
    if visible(character):
        return character
    letter = ord(character) - _TAGS
    return chr(letter) if 0x20 <= letter < 0x7F else f"<U+{ord(character):04X}>"
