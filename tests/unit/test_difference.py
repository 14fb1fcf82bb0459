"""How two JSON values differ, place by place."""

from hypothesis import given
from hypothesis import strategies as st

from consumer.api.difference import differences

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_places_are_named_by_keys_ids_and_numbers() -> None:
    old = {
        "version": 1,
        "labels": ["a", "b"],
        "criteria": [{"id": "x", "weight": 1}, {"id": "y", "weight": 2}],
        "gone": True,
    }
    new = {
        "version": 2,
        "labels": ["a", "c", "d"],
        "criteria": [{"id": "y", "weight": 3}, {"id": "x", "weight": 1}, {"id": "z"}],
    }
    assert list(differences(old, new)) == [
        ("version", 1, 2),
        ("labels[2]", "b", "c"),
        ("labels[3]", None, "d"),
        ("criteria[y].weight", 2, 3),
        ("criteria[z]", None, {"id": "z"}),
        ("gone", True, None),
    ]


@given(JSON)
def test_a_value_does_not_differ_from_itself(value: object) -> None:
    assert list(differences(value, value)) == []
