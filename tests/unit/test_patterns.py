"""Patterns from profiles: linear time on whatever they are given, and a clear word on the rest."""

import itertools
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from consumer.scoring.patterns import MAX_CHARACTERS, Pattern, compiled, find, find_all


def seconds(pattern: str, text: str) -> float:
    """The least of three runs: other processes only ever add."""
    compiled(pattern)
    runs = []
    for _ in range(3):
        begin = process_time()
        assert find(pattern, text) is None
        runs.append(process_time() - begin)
    return min(runs)


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        (r"(a+)+$", "a"),
        (r"(a|aa)+$", "a"),
        (r"(.*a){20}b", "a"),
        (r"(a*)*b$", "a"),
        (r"^(\w+\s?)*$", "word "),
        (r"(x+x+)+y", "x"),
        (r"([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}$", "a"),
    ],
)
def test_attacks_take_linear_time(pattern: str, unit: str) -> None:
    # Backtracking engines need 2^n steps: with 40 characters longer than anyone waits.
    small, large = (unit * (count // len(unit)) + "!?" for count in (5_000, 40_000))
    assert seconds(pattern, large) < 2
    # Eight times the text takes about eight times as long; quadratic would be 64.
    assert seconds(pattern, large) < 30 * max(seconds(pattern, small), 0.002)


@pytest.mark.parametrize("pattern", [r"(x{1000}){1000}", r"((a{100}){100}){100}", r"a{1001}"])
def test_nested_counts_that_explode_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^not a usable pattern: .*repetition.* \(RE2 syntax\)$"):
        compiled(pattern)


def test_a_pattern_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^not a usable pattern: .*too large.* \(RE2 syntax\)$"):
        compiled(r"(\pL{500}|\pN{500}|\pP{500}|[^\pL]{500}){2}")


def test_the_products_own_patterns_may_take_more() -> None:
    large = r"\pL{100}N"
    with pytest.raises(ValueError, match=r"too large"):
        compiled(large)
    assert compiled(large, own=True).search("a" * 100 + "n")


def test_counts_within_bounds_stay_quick() -> None:
    assert seconds(r"((a{10}){10}){10}b", "a" * 50_000) < 2


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"(?P<x>a)(?P=x)", "invalid perl operator: (?P"),
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?!a)b", "invalid perl operator: (?!"),
        ("(?<=a)b", "invalid perl operator: (?<="),
        ("(?<!a)b", "invalid perl operator: (?<!"),
        ("(", "missing ): ("),
        ("[a", "missing ]: [a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("[z-a]", "invalid character class range: z-a"),
    ],
)
def test_what_the_engine_lacks_is_refused_with_its_name(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^not a usable pattern: ") as error:
        compiled(pattern)
    assert str(error.value).startswith(f"not a usable pattern: {reason}")
    assert str(error.value).endswith(" (RE2 syntax)")


def test_case_does_not_matter() -> None:
    assert find("größe", "Die GRÖßE zählt") == (4, 9)
    assert find("[a-c]x", "BX") == (0, 2)
    assert find("(?-i)ab", "AB ab") == (3, 5)


def test_offsets_are_characters_not_bytes() -> None:
    text = "größe 😀 größe"
    (first, second) = find_all("größe", text)
    assert [text[slice(*spot)] for spot in (first, second)] == ["größe", "größe"]
    assert (first, second) == ((0, 5), (8, 13))
    assert find("😀", text) == (6, 7)


def test_text_that_cannot_be_encoded_is_searched_all_the_same() -> None:
    text = "\ud800ä\udfff miner \x00"
    assert find("miner", text) == (4, 9)
    assert list(find_all("m|r", text)) == [(4, 5), (8, 9)]


def test_a_pattern_may_not_occur() -> None:
    assert find("x", "abc") is None
    assert list(find_all("x", "abc")) == []


def test_matches_do_not_overlap_and_empty_ones_are_left_out() -> None:
    assert list(find_all("aa", "aaaaa")) == [(0, 2), (2, 4)]
    assert list(find_all("b*", "abba")) == [(1, 3)]
    assert find("b*", "abba") == (0, 0)


def test_patterns_of_profiles_are_checked_and_bounded() -> None:
    pattern: TypeAdapter[str] = TypeAdapter(Pattern)
    assert pattern.validate_python("a+") == "a+"
    assert pattern.validate_python("a" * MAX_CHARACTERS)
    for refused in ("", "a" * (MAX_CHARACTERS + 1), "("):
        with pytest.raises(ValidationError):
            pattern.validate_python(refused)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_offsets_fit_any_text(text: str) -> None:
    spots = list(find_all(r"\pL+", text))
    assert all(0 <= start < end <= len(text) for start, end in spots)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spots))
    # By the engine's own tables: they know newer letters than Python's do.
    assert all(find(r"\pL+", text[start:end]) == (0, end - start) for start, end in spots)
