"""The objects of a text: the same ones that Python's json finds where it is tried at each brace."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from consumer.scoring.json_objects import MAX_DEPTH, DoubledKeys, TooDeep, objects
from consumer.scoring.text import Spot
from tests.unit.builders import answer_json, free_form_answer

VERDICTS = [answer_json(), json.dumps(free_form_answer(), indent=1)]
ENDS = [VERDICTS[0][:70], VERDICTS[1][-70:]]
PARTS = [*'{}[]"\\,:1a\n ', "```", "```json\n", '"k":', '"k":1', '{"a":', "{}", '"{}"', '"{"', "1}"]
NUMBERS = ["-0.5e+3", "1e9", "01", "1.", "-", "NaN", "-Infinity", "true", "nul", "9" * 4300]
STRINGS = ['"\\u00e9"', '"\\ud83d\\ude00"', '"\\u12"', '"\\x"', '"\t"', '"\x7f\u2028"', "\ufeff"]
TEXTS = st.lists(
    st.sampled_from(
        [*PARTS, *NUMBERS, *STRINGS, *VERDICTS, *ENDS, "<think>", "so {x}", "9" * 4301]
    ),
    max_size=25,
).map("".join)


def tried_at_each_brace(text: str) -> Iterator[Spot]:
    """What is promised, in quadratic time."""
    decoder = json.JSONDecoder(object_pairs_hook=_no_doubles)
    position = 0
    while (start := text.find("{", position)) >= 0:
        try:
            _, position = decoder.raw_decode(text, start)
        except DoubledKeys:
            raise
        except ValueError:
            position = start + 1
        else:
            yield start, position


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if doubled := sorted({key for key in keys if keys.count(key) > 1}):
        raise DoubledKeys(doubled)
    return dict(pairs)


def outcome(found: Iterator[Spot]) -> list[Spot] | str:
    try:
        return list(found)
    except DoubledKeys as error:
        return f"doubled: {error}"


@given(TEXTS)
@example('{"a":1,"a":1}{')
@example('{"{":"{","{":1}, {"b": {}}')
@example('{"a": "{}" {"b": "}{\\"}"}')
@example('{"a":{"b":1,"b":2}')
@example('{"{":{"{":{"":1}}')
@example('[{"a":[{}]},{"\\u0061":1,"a":2}]')
def test_they_are_those_that_a_decoder_finds(text: str) -> None:
    assert outcome(objects(text)) == outcome(tried_at_each_brace(text))


@given(st.text(alphabet='{}[]",:\\1a` \n', max_size=40))
def test_whatever_the_characters(text: str) -> None:
    assert outcome(objects(text)) == outcome(tried_at_each_brace(text))


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats(), st.lists))
def test_what_json_writes_is_one_object(value: Any) -> None:
    text = json.dumps({"a": value})
    assert list(objects(f"so: {text}.")) == [(4, 4 + len(text))]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deeply_is_not_read(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return f'{{"a":{opening * (depth - 1)}1{closing * (depth - 1)}}}'

    assert list(objects(nested(MAX_DEPTH))) == [(0, len(nested(MAX_DEPTH)))]
    for text in (nested(MAX_DEPTH + 1), nested(MAX_DEPTH + 1).rstrip("]}")):
        with pytest.raises(TooDeep):
            list(objects(text))
