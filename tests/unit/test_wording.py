"""Scorers of the final analysis' wording: each rule's value, in more than one language."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from consumer.scoring.scorers.base import Measured, NotApplicable, Params, Result, Subject, subject
from consumer.scoring.scorers.consistency import InternalConsistency, internal_consistency
from consumer.scoring.scorers.keywords import Text
from consumer.scoring.scorers.prose import count_words, sentences
from consumer.scoring.scorers.reasoning import ReasoningStructure, reasoning_structure
from consumer.scoring.scorers.wording import (
    Conciseness,
    Coverage,
    Policy,
    Readability,
    Structure,
    conciseness,
    coverage,
    policy,
    readability,
    structure,
)
from tests.unit.builders import session

SCORERS: list[tuple[Any, Params]] = [
    (coverage, Coverage.model_validate({"dimensions": [{"name": "cause", "any_of": ["cause"]}]})),
    (structure, Structure(required_sections=("Cause", "pattern:^sum"), max_characters=50)),
    (policy, Policy(banned=("sorry", "pattern:a+b", "障"), required_disclaimers=("ok",))),
    (readability, Readability()),
    (conciseness, Conciseness()),
    (reasoning_structure, ReasoningStructure()),
    (internal_consistency, InternalConsistency()),
]


def about(text: str) -> Subject:
    return subject(session(final_analysis=text), price=lambda i, o: None, cost_usd=None)


def score(result: Result) -> float:
    assert isinstance(result, Measured), result
    return float(result.score)


def excerpts(result: Result) -> list[str]:
    assert isinstance(result, Measured), result
    return [place.excerpt for place in result.places]


# --- Keywords


@pytest.mark.parametrize(
    ("keyword", "text", "expected"),
    [
        ("pod", "The Pod died.", ["Pod"]),
        ("pod", "pods, podman, tripod, pod_1", []),
        ("pod", "pod-1 (pod) pod.", ["pod", "pod", "pod"]),
        ("root cause", "**Root** cause,\nroot\n  CAUSE", ["Root** cause", "root\n  CAUSE"]),
        ("is running", "`web` is `running`", ["is `running"]),
        ("can't", "I can\u2019t say", ["can\u2019t"]),
        ("größe", "Die GRÖSSE und Größe", ["Größe"]),
        ("ursache", "Hauptursache", []),
        ("Ursache", "DIE URSACHE: x", ["URSACHE"]),
        ("ärzte", "a\u0308rzte", ["a\u0308rzte"]),  # decomposed
        ("e", "e\u0301", []),  # the mark belongs to the letter
        ("障害", "重大障害発生", ["障害"]),
        ("pod", "このpodが", ["pod"]),
        ("원인", "원인은 메모리", ["원인"]),
        ("สาเหตุ", "หาสาเหตุแล้ว", ["สาเหตุ"]),
        ("السبب", "كان السبب هو", ["السبب"]),
        ("سبب", "كان السبب هو", []),
        ("100%", "is 100% or 100%x", ["100%", "100%"]),
        ("\u0130stanbul", "istanbul", ["istanbul"]),
        ("ΟΔΟΣ", "οδος οδοσ", ["οδος", "οδοσ"]),
        ("pattern:po[dt]s?", "PODs spot", ["PODs", "pot"]),
        ("pod", "\ud800pod\x00", ["pod"]),
    ],
)
def test_keywords_are_whole_words_without_case_in_any_script(
    keyword: str, text: str, expected: list[str]
) -> None:
    read = Text(text)
    assert [text[start:end] for start, end in read.all((keyword,))] == expected
    assert read.has(keyword) == bool(expected)
    assert Policy(banned=(keyword,)).banned == (keyword,)


@pytest.mark.parametrize("keyword", ["", " ", "**", "pattern:(", "pattern:", "pattern:x*", 7])
def test_a_keyword_that_finds_nothing_or_everything_is_refused(keyword: Any) -> None:
    with pytest.raises(ValidationError):
        Policy(banned=(keyword,))


# --- Coverage

DIMENSIONS = [
    {"name": "impact", "any_of": ["impact", "pattern:affect(s|ed)", "Auswirkung", "影響"]},
    {"name": "cause", "any_of": ["cause", "Ursache", "原因", "السبب"]},
]


@pytest.mark.parametrize(
    ("text", "expected", "missing"),
    [
        ("The cause is a leak; it affects all.", 1, []),
        ("The cause is a leak.", 0.5, ["missing: impact"]),
        ("Ursache und Auswirkung", 1, []),
        ("原因は不明。", 0.5, ["missing: impact"]),
        ("السبب غير معروف", 0.5, ["missing: impact"]),
        ("causes", 0, ["missing: impact", "missing: cause"]),
        (" \n", 0, ["missing: impact", "missing: cause"]),
    ],
)
def test_coverage_is_dimensions_mentioned_over_required(
    text: str, expected: float, missing: list[str]
) -> None:
    result = coverage(about(text), Coverage.model_validate({"dimensions": DIMENSIONS}))
    assert score(result) == expected
    assert excerpts(result) == missing


# --- Structure


@pytest.mark.parametrize(
    "text",
    [
        "# Root cause",
        "x\n\n### 2. Root Cause Analysis ###\n",
        "1.2) Root cause: a leak",
        "**Root cause:** a leak",
        "- **Root cause** a leak",
        "__root cause__ a leak",
        "Root cause\n==========",
        "Root cause\n---",
        "Root cause: a leak",
        "Root cause\uff1aa leak",
        "## **Root cause:**",
        "```markdown\n# Root cause\n```\nend",
        "```\ncode\n```\n# Root cause",
    ],
)
def test_a_section_is_a_heading_a_lead_in_or_a_name(text: str) -> None:
    params = Structure(required_sections=("root cause", "pattern:^root cause"))
    assert score(structure(about(text), params)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The root cause is a leak.",
        "#root cause",
        "```\n# Root cause\n```",
        "```sh\n# Root cause",
        "```sh\n```py\n# Root cause\n```",
        "~~~\nRoot cause: x\n~~~",
        "We could not find anything that is a real root cause: x",
        "at 12:root cause",
        "| Root cause: | x |",
        "# Root\n# cause",
    ],
)
def test_other_text_is_no_section(text: str) -> None:
    params = Structure(required_sections=("root cause",))
    assert excerpts(structure(about(text), params)) == ["missing: root cause"]


@pytest.mark.parametrize(
    ("params", "text", "expected", "shown"),
    [
        ({"required_sections": ["Ursache", "Folgen"]}, "## Ursache\nx", 0.5, ["missing: Folgen"]),
        ({"required_sections": ["概要", "原因"]}, "## 概要と原因", 1, []),
        ({"required_sections": ["الملخص"]}, "الملخص: حدث", 1, []),
        ({"required_sections": ["pattern:^b$"]}, "# a\n# b\n# c", 1, []),
        ({"prohibited": ["TODO", "x{3}"]}, "a todo", 0.5, ["a todo"]),
        ({"prohibited": ["pattern:todo"]}, "a todo", 0, ["a todo"]),
        ({"prohibited": ["todo"]}, "done", 1, []),
        ({"min_characters": 3}, "  ab \n", 0, ["2 characters, at least 3 wanted"]),
        ({"min_characters": 3}, "障害だ", 1, []),
        ({"max_characters": 3}, "abc\n\n", 1, []),
        ({"max_characters": 3}, "abcd", 0, ["4 characters, at most 3 wanted"]),
        ({"min_characters": 1, "max_characters": 3, "prohibited": ["b"]}, "abcd", 1 / 3, None),
        ({"prohibited": ["b"], "max_characters": 3}, "", 0, []),
        ({"required_sections": ["A"]}, " \n", 0, ["missing: A"]),
    ],
)
def test_structure_is_the_share_of_checks_met(
    params: dict[str, Any], text: str, expected: float, shown: list[str] | None
) -> None:
    result = structure(about(text), Structure.model_validate(params))
    assert score(result) == expected
    assert shown is None or excerpts(result) == shown


# --- Policy


@pytest.mark.parametrize(
    ("params", "text", "expected"),
    [
        ({"banned": ["guaranteed"]}, "fine", 1),
        ({"banned": ["guaranteed"]}, "Guaranteed!", 2 / 3),
        ({"banned": ["guaranteed"]}, "guaranteed guaranteed", 1 / 3),
        ({"banned": ["guaranteed"]}, "guaranteed " * 9, 0),
        ({"banned": ["guaranteed"], "limit": 1}, "guaranteed", 0),
        ({"banned": ["guaranteed"], "limit": 10}, "guaranteed " * 9, 0.1),
        ({"banned": ["fix", "fix it", "fix"]}, "fix it", 1 / 3),
        ({"banned": ["fix"]}, "prefix fixes", 1),
        ({"banned": ["pattern:fix(es)?"]}, "prefix fixes", 1 / 3),
        ({"banned": ["garantiert", "絶対"]}, "Garantiert! 絶対に", 1 / 3),
        ({"banned": ["مضمون"]}, "هذا مضمون.", 2 / 3),
        ({"banned": ["x"], "required_disclaimers": ["no advice"]}, "This is NO\nadvice.", 1),
        ({"required_disclaimers": ["no advice", "pattern:v\\d"]}, "no advice", 0),
        ({"required_disclaimers": ["no advice"]}, "", 0),
        ({"banned": ["x"]}, "", 1),
    ],
)
def test_policy_counts_banned_phrases_and_wants_disclaimers(
    params: dict[str, Any], text: str, expected: float
) -> None:
    assert score(policy(about(text), Policy.model_validate(params))) == pytest.approx(expected)


def test_policy_shows_what_is_missing_and_five_hits_in_order() -> None:
    text = "A bad thing." + " " * 200 + "worse " * 9
    params = Policy(banned=("worse", "bad"), required_disclaimers=("ok",), limit=1)
    shown = excerpts(policy(about(text), params))
    assert shown[:2] == ["missing: ok", "A bad thing."]
    assert len(shown) == 5


# --- Readability

WORDS = "word " * 100


def prose(*lengths: int) -> str:
    return " ".join(("word " * length).strip() + "." for length in lengths)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (prose(5), 1),
        (prose(20), 1),
        (prose(30), 0.75),
        (prose(40), 0.5),
        (prose(41), 0),
        (prose(10, 50), 0.5),  # mean 30: 0.5; one of two is long: 0.5
        (prose(1, 1, 1, 50), 0.875),
        ("障" * 40 + "。", 1),
        ("障" * 60 + "。", 0.75),
        ("障" * 60 + "。" + "障" * 20 + "\uff01", 1),
        ("كلمة " * 30 + "؟", 0.75),
        ("कख " * 15 + "। " + "कख " * 15 + "।", 1),
        ("- " + "word " * 15 + "\n- " + "word " * 15, 1),
        ("word " * 25 + "\nand on " + "word " * 23, 0),  # one sentence over a line's end
        ("short line\n" * 30, 1),
        ("word " * 25 + "\n---\n" + "word " * 15, 1),
        ("ok\n```\n" + WORDS + "\n```", 1),
        ("ok\n| " + WORDS + " |", 1),
        ("ok\n# " + WORDS, 1),
        ("version 1.5.2 of a.b " * 15, 0),
    ],
)
def test_readability_by_sentence_length(text: str, expected: float) -> None:
    assert score(readability(about(text), Readability())) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("params", "text", "expected"),
    [
        ({"good_mean_words": 2, "bad_mean_words": 4, "long_words": 9}, prose(3), 0.75),
        ({"long_words": 2}, prose(3), 0.5),
        ({"characters_per_word": 4}, "障" * 120 + "。", 0.75),
    ],
)
def test_readability_by_its_params(params: dict[str, Any], text: str, expected: float) -> None:
    result = readability(about(text), Readability.model_validate(params))
    assert score(result) == pytest.approx(expected)


def test_readability_shows_the_longest_sentences() -> None:
    result = readability(about(prose(21, 3, 70, 45)), Readability())
    assert [shown.split(":")[0] for shown in excerpts(result)] == [
        "70 words",
        "45 words",
        "21 words",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ('He said "no." Then left.', ['He said "no.', "Then left."]),
        ("一。二\uff01三\uff1f", ["一", "二", "三"]),
        ("1. one\n2) two\n* three\n\n---\nfour", ["one", "two", "three", "four"]),
        ("Title\n=====\nx", ["Title", "x"]),
        ("... !!! ?", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert list(sentences(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two words - !", 2),
        ("障害 pod", 2),
        ("障害a", 2),
        ("한국어 단어", 2),
        ("ไทยไทย", 3),
        ("", 0),
    ],
)
def test_words_are_counted_in_any_script(text: str, expected: float) -> None:
    assert count_words(text, 2) == expected


# --- Conciseness


@pytest.mark.parametrize(
    ("params", "text", "expected"),
    [
        ({}, "alpha beta gamma delta", 1),
        ({}, "alpha Alpha, **alpha** alpha", 0),  # 1 of 4
        ({}, "alpha beta alpha beta alpha", 1 / 3),  # 2 of 5: 0.1 of 0.3
        ({}, "alpha a b beta", 2 / 3),  # 2 of 4
        ({"min_characters": 1}, "alpha a b beta", 1),
        ({"stopwords": ["BETA"]}, "alpha a b beta", 0),
        ({"poor": 0, "good": 1}, "alpha a b beta", 0.5),
        ({"poor": 0, "good": 1}, "Ursache Ursache", 0.5),
        ({"poor": 0, "good": 1}, "障害発生。障害発生。", 0.5),
        ({"poor": 0, "good": 1, "characters_per_word": 1}, "障障障害", 0.5),
        ({"poor": 0, "good": 1}, "السبب، السبب", 0.5),
        ({"poor": 0, "good": 1}, "alpha\n```\nalpha alpha\n```", 1),
    ],
)
def test_conciseness_is_distinct_content_words_per_word(
    params: dict[str, Any], text: str, expected: float
) -> None:
    result = conciseness(about(text), Conciseness.model_validate(params))
    assert score(result) == pytest.approx(expected)


def test_conciseness_shows_the_words_said_most() -> None:
    result = conciseness(about("beta alpha alpha alpha beta gamma"), Conciseness())
    assert excerpts(result) == ["3 times: alpha", "2 times: beta"]
    assert excerpts(conciseness(about("alpha beta"), Conciseness())) == []


# --- Reasoning structure

WHOLE = (
    "Logs show restarts. Root cause: a leak, because the cache grows. Ruled out: traffic. "
    "No limit is known; the code was not checked. Confidence: high."
)
GERMAN = {
    "evidence": ["Befund"],
    "conclusion": ["Fazit"],
    "causes": ["weil", "pattern:führ(t|te) zu"],
    "alternatives": ["ausgeschlossen"],
    "limitations": ["nicht geprüft"],
    "confidence": ["Sicherheit"],
}
JAPANESE = {
    "evidence": ["ログ"],
    "conclusion": ["結論"],
    "causes": ["ため"],
    "alternatives": ["可能性"],
    "limitations": ["未確認"],
    "confidence": ["確信度"],
}


@pytest.mark.parametrize(
    ("params", "text", "lost"),
    [
        ({}, WHOLE, []),
        ({}, WHOLE.replace("because", "and"), ["missing: causal connective"]),
        ({}, WHOLE.replace("Ruled out", "Seen"), ["missing: alternatives"]),
        ({}, WHOLE.replace("not checked", "read"), ["missing: limitations"]),
        ({}, WHOLE.replace("Confidence", "Sure"), ["missing: confidence"]),
        ({}, WHOLE.replace("Logs show", "It"), ["missing: evidence"]),
        ({}, WHOLE.replace("Root cause", "It is"), ["missing: conclusion"]),
        ({}, "Verdict. " + WHOLE, ["Verdict. Logs show"]),
        (
            GERMAN,
            "Befund: X führte zu Y. Fazit: Z. Ausgeschlossen: A. Nicht geprüft: B.",
            ["missing: confidence"],
        ),
        (
            JAPANESE,
            "ログを確認。メモリ不足のため、結論は再起動。他の可能性は未確認。確信度は高い。",
            [],
        ),
    ],
)
def test_reasoning_structure_is_the_share_of_five(
    params: dict[str, Any], text: str, lost: list[str]
) -> None:
    result = reasoning_structure(about(text), ReasoningStructure.model_validate(params))
    assert score(result) == 1 - len(lost) / 5
    assert [shown[: len(part)] for shown, part in zip(excerpts(result), lost, strict=True)] == lost


# --- Internal consistency


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # stated confidence against stated gaps
        ("Confidence: high.", 1),
        ("The logs were not verified.", 1),
        ("Confidence: high. The logs were not verified.", 0),
        ("**Confidence:** very high (99 %)\n\nWe could not access the node.", 0),
        ("Confidence level: 95 %. Two checks failed.", 0),
        ("| Confidence | High |\n\nThe result is inconclusive.", 0),
        ("Without doubt a leak. The heap was not investigated.", 0),
        ("Confidence: 60 %. The logs were not verified.", 1),
        ("Confidence: low. The logs were not verified.", 1),
        ("Confidence: high. No checks failed.", 1),
        ("High confidence in the leak, medium confidence in its age; code not verified.", 1),
        # gone against running
        ("Pod web-1 is running.", 1),
        ("Pod web-1 was terminated at 12:47. Pod web-1 is confirmed running.", 0),
        ("Pod web-1 was not found, but pod web-1 is still running.", 0),
        ("10.0.0.7 is running; 10.0.0.7 does not exist.", 0),
        ("Pod web-1 was terminated. Pod web-2 is running.", 1),
        ("web-1 was deleted and web-2 is running.", 1),
        ("Deleted: web-1.\n\nIs running: web-1.", 0),
        ("Pod web-1 is running. Pod web-1 should be deleted.", 1),
        ("Pod web-1 was terminated. It was restarted: web-1 is running.", 1),
        ("Pod web-1 was not deleted. Pod web-1 is running.", 1),
        ("3 pods were deleted. 3 pods are running. Severity: low", 1),
        # classification against severity and action
        ("Verdict: MALICIOUS\n\n## Severity\n\nLow.", 0),
        ("Malicious, low severity.", 0),
        ("This is malicious. No action is needed.", 0),
        ("Classification: BENIGN. Severity: critical.", 0),
        ("The user is benign. Ban them.", 0),
        ("A false positive. Do not ban anyone.", 1),
        ("Malicious. Severity: high.", 1),
        ("Benign. Severity: low. No action needed.", 1),
        ("Not malicious. Severity: low.", 1),
        ("Alert severity: critical. The activity is benign.", 1),
        ("Benign, at low cost; malicious intent was looked for. Severity: critical.", 1),
        ("Verdict: benign, though it looked malicious. Severity: critical.", 0),
        ("Benign. The severity was not given. Critical pods exist.", 1),
        ("Severity: critical for one, severity: low for others. Malicious.", 1),
        # one of two, one of three
        ("Confidence: high. Malicious. Severity: low.", 1 / 2),
        ("Confidence: high. web-1 is running. Malicious. Severity: low.", 2 / 3),
        ("Confidence: high. Not verified. web-1 is running. Malicious. Severity: low.", 1 / 3),
    ],
)
def test_internal_consistency_is_contradictions_over_checks_made(
    text: str, expected: float
) -> None:
    result = internal_consistency(about(text), InternalConsistency())
    assert score(result) == pytest.approx(expected)
    assert bool(excerpts(result)) == (expected < 1)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"high_confidence": ["Sicherheit: hoch"], "gaps": ["ungeprüft"]}, None),
        ({"gone": ["gelöscht"], "running": ["läuft"]}, "web-1 ist gelöscht. web-1 läuft noch."),
        ({"gone": ["削除され"], "running": ["稼働中"]}, "web-1は削除された。web-1は稼働中です。"),
        ({"gone": ["حذف"], "running": ["يعمل"]}, "تم حذف web-1. الآن web-1 يعمل."),
        (
            {"malicious": ["悪意"], "severity_labels": ["深刻度"], "low_level": ["低"]},
            "悪意のある活動。深刻度\uff1a低",
        ),
    ],
)
def test_internal_consistency_in_other_languages(params: dict[str, Any], text: str | None) -> None:
    said = text or "Sicherheit: hoch. Die Logs sind ungeprüft."
    assert score(internal_consistency(about(said), InternalConsistency.model_validate(params))) == 0
    assert isinstance(internal_consistency(about(said), InternalConsistency()), NotApplicable)


def test_both_sides_of_a_contradiction_are_shown() -> None:
    text = "Pod web-1 was terminated." + " " * 300 + "Pod web-1 is running."
    shown = excerpts(internal_consistency(about(text), InternalConsistency()))
    assert shown == ["Pod web-1 was terminated.", "Pod web-1 is running."]


# --- All of them


@pytest.mark.parametrize(("scorer", "params"), SCORERS[3:])
@pytest.mark.parametrize("text", ["", " \n\t"])
def test_without_an_analysis_there_is_no_quality(scorer: Any, params: Params, text: str) -> None:
    assert scorer(about(text), params) == NotApplicable("there is no final analysis")


@pytest.mark.parametrize("scorer", [readability, conciseness])
def test_without_words_there_is_no_quality(scorer: Any) -> None:
    params = Readability() if scorer is readability else Conciseness()
    assert scorer(about("--- !!!"), params) == NotApplicable("the final analysis has no prose")


def test_without_claims_there_is_no_consistency() -> None:
    assert isinstance(internal_consistency(about("Hello."), InternalConsistency()), NotApplicable)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (Coverage, {"dimensions": []}),
        (Coverage, {"dimensions": [{"name": "a", "any_of": []}]}),
        (Coverage, {"dimensions": [{"name": "a", "any_of": ["x"]}] * 2}),
        (Structure, {}),
        (Structure, {"min_characters": 3, "max_characters": 2}),
        (Structure, {"prohibited": ["("]}),
        (Structure, {"sections": ["a"]}),
        (Policy, {}),
        (Policy, {"banned": ["x"], "limit": 0}),
        (Readability, {"good_mean_words": 40}),
        (Readability, {"characters_per_word": 0}),
        (Conciseness, {"poor": 0.6}),
        (Conciseness, {"good": 1.1}),
        (ReasoningStructure, {"evidence": []}),
        (InternalConsistency, {"gone": ["pattern:["]}),
    ],
)
def test_unusable_params_are_refused(model: type[Params], params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(params)


@pytest.mark.parametrize("model", [ReasoningStructure, InternalConsistency])
def test_the_default_keywords_are_valid(model: type[Params]) -> None:
    assert model.model_validate(model().model_dump()) == model()


SNIPPETS = st.sampled_from(
    [
        "confidence: high",
        "not verified",
        "pod-1",
        " is running",
        " deleted",
        "malicious",
        "severity",
        " low ",
        "\n",
        ". ",
        "# ",
        "**",
        "```",
        "|",
        "- ",
        ": ",
        "cause",
        "障",
        "。",
        "\ud800",
        "\x00",
    ]
)
TEXTS = st.one_of(
    st.text(st.characters(codec=None), max_size=200), st.lists(SNIPPETS, max_size=40).map("".join)
)


@given(text=TEXTS)
def test_any_text_gets_a_score_in_bounds(text: str) -> None:
    for scorer, params in SCORERS:
        result = scorer(about(text), params)
        if isinstance(result, Measured):
            assert 0 <= result.score <= 1
            assert len(result.places) <= 5
            assert all(len(place.excerpt) <= 160 for place in result.places)


@given(text=TEXTS)
def test_a_required_section_never_lowers_structure(text: str) -> None:
    params = Structure(required_sections=("Cause", "Impact"), prohibited=("deleted",))
    before = score(structure(about(text), params))
    assert score(structure(about(f"# Cause\n\n{text}"), params)) >= before


PHRASES = st.lists(st.sampled_from(["deleted", "low", "pod", "障", "pattern:[a-z]+"]), max_size=4)


@given(text=TEXTS, phrases=PHRASES, more=PHRASES)
def test_a_banned_phrase_never_raises_policy(text: str, phrases: Any, more: Any) -> None:
    fewer = Policy(banned=("is", *phrases))
    stricter = Policy(banned=("is", *phrases, *more))
    assert score(policy(about(text), stricter)) <= score(policy(about(text), fewer))


@given(text=TEXTS, keyword=st.sampled_from(["pod", "deleted", "障"]))
def test_a_mention_never_lowers_coverage(text: str, keyword: str) -> None:
    dimensions = [{"name": k, "any_of": [k]} for k in ("pod", "deleted", "障")]
    params = Coverage.model_validate({"dimensions": dimensions})
    assert score(coverage(about(f"{text} {keyword}"), params)) >= score(
        coverage(about(text), params)
    )


@pytest.mark.parametrize(
    "unit",
    ["word ", "a", "\n", " ", "*", "**a", "a:\n", "pod-1 is running. ", "no ", "障。", "e\u0301"],
)
def test_repetitive_text_is_scored_within_bounds(unit: str) -> None:
    """Quadratic time would take minutes here, and run into the suite's time limit."""
    text = unit * (100_000 // len(unit))
    for scorer, params in SCORERS:
        result = scorer(about(text), params)
        assert isinstance(result, NotApplicable) or 0 <= result.score <= 1
