"""`${VAR}` in configuration values."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.substitution import SubstitutionError, substitute, substitute_in

ENVIRONMENT = {
    "NAME": "value",
    "EMPTY": "",
    "_x1": "under",
    "DOLLARS": "$NAME ${NAME} $$ }",
}
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,5}\Z")


def refused(text: str) -> tuple[list[str], list[str]]:
    with pytest.raises(SubstitutionError) as error:
        substitute(text, ENVIRONMENT)
    return error.value.missing, error.value.malformed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${NAME}", "value"),
        ("a${NAME}b${_x1}c", "avaluebunderc"),
        ("${EMPTY}", ""),
        # The default: where unset or empty.
        ("${NAME:-other}", "value"),
        ("${EMPTY:-other}", "other"),
        ("${UNSET:-other}", "other"),
        ("${UNSET:-}", ""),
        ("${EMPTY:-}", ""),
        ("${UNSET:-a b:-c/d?}", "a b:-c/d?"),
        # Nested.
        ("${UNSET:-${NAME}}", "value"),
        ("${UNSET:-${EMPTY:-${ALSO_UNSET:-deep}}}", "deep"),
        ("${UNSET:-<${NAME}|${EMPTY:-x}>}!", "<value|x>!"),
        ("${UNSET:-${EMPTY}}", ""),
        # Dollars.
        ("$$", "$"),
        ("$$$$", "$$"),
        ("$${NAME}", "${NAME}"),
        ("$$${NAME}", "$value"),
        ("${UNSET:-$$}", "$"),
        ("${UNSET:-$${NAME}", "${NAME"),
        ("$NAME", "$NAME"),
        ("$", "$"),
        ("a$", "a$"),
        ("$ {NAME}", "$ {NAME}"),
        # Braces outside.
        ("{NAME}", "{NAME}"),
        ("${NAME}}", "value}"),
        ("${UNSET:-{x}}", "{x}"),
    ],
)
def test_substitution(text: str, expected: str) -> None:
    assert substitute(text, ENVIRONMENT) == expected


def test_values_are_not_expanded_again() -> None:
    assert substitute("${DOLLARS}", ENVIRONMENT) == "$NAME ${NAME} $$ }"
    assert substitute("${UNSET:-${DOLLARS}}", ENVIRONMENT) == "$NAME ${NAME} $$ }"


def test_every_missing_name_is_told() -> None:
    assert refused("${ONE} ${NAME} ${TWO} ${EMPTY}") == (["ONE", "TWO"], [])
    assert refused("${UNSET:-${ONE}/${EMPTY:-${TWO}}}") == (["ONE", "TWO"], [])


def test_a_default_that_is_not_taken_misses_nothing() -> None:
    assert substitute("${NAME:-${ONE}}", ENVIRONMENT) == "value"
    assert substitute("${NAME:-${ONE:-${TWO}}}", ENVIRONMENT) == "value"
    assert refused("${NAME:-${ONE}} ${EMPTY:-${TWO}}") == (["TWO"], [])


@pytest.mark.parametrize(
    "text",
    [
        "${",
        "${}",
        "${NAME",
        "${NAME ",
        "${NAME-x}",
        "${NAME:x}",
        "${NAME:?x}",
        "${1NAME}",
        "${NA ME}",
        "${NÄME}",
        "${:-x}",
        "${NAME:-x",
        "${UNSET:-${NAME}",
        "${UNSET:-${}}",
        "ok ${NAME} but ${",
    ],
)
def test_what_cannot_be_read_is_refused_with_its_text(text: str) -> None:
    missing, malformed = refused(text)
    assert missing == []
    (problem,) = malformed
    assert repr(text) in problem


def test_a_malformed_text_still_tells_what_was_missing_before() -> None:
    missing, malformed = refused("${ONE} ${")
    assert missing == ["ONE"]
    assert len(malformed) == 1


@given(st.text(st.characters(exclude_characters="$")))
def test_text_without_a_dollar_stays(text: str) -> None:
    assert substitute(text, {}) == text


@given(st.text())
def test_doubled_dollars_give_the_text_back(text: str) -> None:
    assert substitute(text.replace("$", "$$"), {}) == text


@given(names, st.text())
def test_a_value_goes_in_as_it_is(name: str, value: str) -> None:
    assert substitute(f"<${{{name}}}>", {name: value}) == f"<{value}>"


@given(names, st.text(), st.text(st.characters(exclude_characters="$}")))
def test_a_default_is_for_unset_and_empty(name: str, value: str, default: str) -> None:
    text = f"${{{name}:-{default}}}"
    assert substitute(text, {name: value}) == (value or default)
    assert substitute(text, {}) == default


@given(st.text(st.sampled_from("${}:-AB ")))
def test_any_text_is_replaced_or_refused(text: str) -> None:
    with contextlib.suppress(SubstitutionError):
        result = substitute(text, {"A": "x"})
        assert len(result) <= len(text)


# --- Documents ---------------------------------------------------------------------------------


def test_every_string_of_a_document_is_replaced_and_nothing_else() -> None:
    document = {
        "${NAME}": "${NAME}",
        "list": ["${EMPTY:-x}", {"deep": "$$"}, 7, None, True, 1.5],
    }
    before = str(document)
    assert substitute_in(document, ENVIRONMENT) == {
        "${NAME}": "value",
        "list": ["x", {"deep": "$"}, 7, None, True, 1.5],
    }
    assert str(document) == before


def test_one_error_tells_all_that_is_wrong_with_a_document() -> None:
    document: Any = {"a": "${TWO}", "b": ["${ONE}", "${TWO}", "${"], "c": {"d": "${NAME:x}"}}
    with pytest.raises(SubstitutionError) as error:
        substitute_in(document, ENVIRONMENT)
    assert error.value.missing == ["ONE", "TWO"]
    assert len(error.value.malformed) == 2
    assert str(error.value) == ", ".join([*error.value.missing, *error.value.malformed])
