"""Texts that are made to be slow to look through. Each takes its size in characters, about."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import count, takewhile

Text = Callable[[int], str]


def again(piece: str, *, before: str = "", after: str = "") -> Text:
    """The piece, again and again."""
    return lambda size: before + piece * (size // len(piece)) + after


def numbered(piece: str) -> Text:
    """The piece with a number, another one each time."""

    def text(size: int) -> str:
        return "".join(piece.format(n) for n in range(size // len(piece.format(10**4))))

    return text


def encoded(width: int) -> Text:
    """Base64 in lines of this width."""

    def text(size: int) -> str:
        numbers = takewhile(lambda n: n * 8 < size, count())
        whole = base64.b64encode(b"".join(n.to_bytes(6, "big") for n in numbers)).decode()
        return "\n".join(whole[at : at + width] for at in range(0, len(whole), width))

    return text


TEXTS: dict[str, Text] = {
    "letters": again("a"),
    "words": again("pod "),
    "lines": again("x\n"),
    "blank lines": again("\n"),
    "blanks": again(" "),
    "blanks and lines": again(" \n\t"),
    "braces": again("{"),
    "json": again('{"a": ["b", {"c": 1}]}\n'),
    "open objects": again('{"a":'),
    "backslashes": again("\\"),
    "escapes": again("\\u0041\\n"),
    "quotes": again('"'),
    "odd quotes": again("'\" `"),
    "backticks": again("`"),
    "code": again("`a-b` "),
    "open code": again("`a\n"),
    "fences": again("```\n"),
    "fences of markdown": again("```md\n"),
    "other fences": again("~~~py\n"),
    "headings": again("# a\n"),
    "bold": again("**a**\n"),
    "stars": again("*"),
    "bullets": again("- a\n"),
    "bullets of stars": again("* "),
    "rules": again("---\n"),
    "tables": again("|a|b|\n"),
    "names of sections": again("a: b\n"),
    "underscores": again("_"),
    "snake": again("a_"),
    "dots": again("."),
    "dashes": again("-"),
    "sentences": again("It is. "),
    "sentence ends": again('."'),
    "digits": again("1"),
    "numbers": again("12.5% 3,000 "),
    "other numbers": numbered("{} "),
    "dotted numbers": again("1."),
    "version and a sign": again("1.", after="1a\u00d7"),
    "version and an accent": again("1.", after="1a\u0301"),
    "groups of digits": again("1,000,"),
    "ranges": again("1-2:3/"),
    "dates": again("3 May 2026, "),
    "ordinals": again("1.1.1) "),
    "units": again("5Mi 5 GB 5m "),
    "names": numbered("pod-{} "),
    "hosts": again("a.", after="io"),
    "mail": again("b.", before="a@", after=":b"),
    "signs": again("@"),
    "colons": again("a:"),
    "addresses": numbered("10.{}.1.1 "),
    "paths": again("/a"),
    "one long name": again("a-1", after=" "),
    "code with names": again("a-b.c ", before="`", after="`"),
    "citations": again("[1] "),
    "other citations": numbered("[{}] "),
    "citations in one": again("1,", before="[", after="1]"),
    "an open citation": again("1, ", before="["),
    "brackets": again("["),
    "references": numbered("[{}]: x\n"),
    "references under a heading": again("1. x\n", before="# References\n"),
    "errors": again("error: x\n"),
    "other errors": numbered("error {}\n"),
    "errors on one line": again("error "),
    "thoughts": again("Thought: x\n"),
    "thoughts after blanks": again("   \t"),
    "answers": again("Final Answer: x\n"),
    "base64": encoded(10**9),
    "base64 as mail has it": encoded(76),
    "base64 in short lines": encoded(21),
    "base64 in quoted lines": again("QUJD" * 16 + "\\n"),
    "orders": again("ignore all previous instructions "),
    "half orders": again("ignore all "),
    "verdicts": again('"total_score": 100, '),
    "labels": again("Severity: low. Verdict: malicious. "),
    "confidence": again("high confidence, not verified. "),
    "negations": again("not "),
    "states": numbered("pod-{} is running. "),
    "states of one": again("pod-1 deleted, pod-1 is running. "),
    "nul": again("\0"),
    "accents": again("\u0301", before="e"),
    "unsorted accents": again("\u0316\u0301\u0334", before="e"),
    "accented words": again("e\u0301t\u00e9 "),
    "zero width": again("a\u200b"),
    "rows of zero width": again("\u200b"),
    "right to left": again("\u202e\u0627\u0644\u202c "),
    "tags": again("\U000e0041"),
    "full width": again("\uff41\uff11"),
    "ligatures": again("\ufdfa"),
    "line separators": again("\u2028\x85"),
    "without spaces": again("障害原因"),
    "thai": again("\u0e01\u0e33"),
    "hangul": again("\uc7a5\uc560 "),
    "emoji": again("\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    "dotted capital i": again("\u0130"),
    "advice": again("Set it to 57. Then raise it, and set 58 and "),
    "advice in one sentence": again("and should set it to 57 because of 58 "),
    "advice under headings": again("# Next steps\nCap it at 57\n"),
    "windows of time": again("will be 5 to 7 days, within the last 57 hours "),
    "sums": numbered("{0} and 1{0} make 7{0}, "),
    "numbered marks": again("(1) a (2) "),
    "lists of things": again("57 pods:\n- a\n"),
    "lists in lists": again("57 pods (a, b, "),
    "times of day": again("12:55 to 13:03, 57 minutes "),
    "yes or no": numbered('"insured{}": "no", '),
    "ends of ids": numbered("card_99{0}57 and 1{0}57 "),
    "names of days": again("May 5th of May "),
    "verbs": again("get_or_create_and_"),
    "punctuation": again("\u3002\u060c"),
}
