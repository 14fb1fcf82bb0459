"""Judge profiles: what is accepted, what is refused and how it is told, which one is chosen."""

from typing import Any

import pytest

from consumer.config import load_profiles
from consumer.resources import resource
from consumer.scoring.profile import ProfileInvalid, by_id, parse_profile, select
from consumer.scoring.rules import SCORERS
from tests.unit.builders import judged, profile, raw_profile, ruled, rules_profile

NAN, INF = float("nan"), float("inf")


def problems(**changes: Any) -> list[str]:
    with pytest.raises(ProfileInvalid) as refusal:
        parse_profile(raw_profile(**changes))
    assert str(refusal.value) == "; ".join(refusal.value.problems)
    return refusal.value.problems


def criterion_problems(criterion: dict[str, Any], method: str = "llm") -> list[str]:
    return problems(method=method, criteria=[criterion])


# --- What ships --------------------------------------------------------------------------------


def test_the_shipped_profiles_load() -> None:
    told: list[str] = []
    shipped = {p.id: p for p in load_profiles(resource("config") / "profiles", told)}
    assert told == []
    review = shipped["alert-investigation"]
    assert (review.method, review.match_labels, review.needs_judge) == ("llm", ("*",), True)
    assert [(c.id, c.max_points, c.weight) for c in review.criteria] == [
        ("logical_flow", 25, 1),
        ("consistency", 25, 1),
        ("tool_relevance", 25, 1),
        ("synthesis_quality", 25, 1),
    ]
    assert all(f"{points}:" in c.description for c in review.criteria for points in (25, 12, 0))
    lean = shipped["efficiency-simple"]
    assert (lean.method, lean.match_labels, lean.needs_judge) == ("heuristic", ("simple",), False)
    weights = {c.id: c.weight for c in lean.criteria}
    assert weights == {"response_time": 2, "token_efficiency": 1, "tool_count": 1}
    assert all(p.quality_risk_threshold == 40 for p in (review, lean))


@pytest.mark.parametrize(
    ("label", "chosen"), [("simple", "efficiency-simple"), ("general", "alert-investigation")]
)
def test_the_shipped_profiles_by_label(label: str, chosen: str) -> None:
    found = select(load_profiles(resource("config") / "profiles", []), label)
    assert found is not None
    assert found.id == chosen


# --- Choice ------------------------------------------------------------------------------------


def test_an_exact_label_comes_before_any_and_the_first_match_wins() -> None:
    first_any = profile(id="first-any", match_labels=["*"])
    second_any = profile(id="second-any", match_labels=["other", "*"])
    exact = profile(id="exact", match_labels=["code", "report"])
    later = profile(id="later", match_labels=["code"])
    all_of_them = [first_any, second_any, exact, later]
    assert select(all_of_them, "code") is exact
    assert select(all_of_them, "report") is exact
    assert select(all_of_them, "other") is second_any
    assert select(all_of_them, "unheard-of") is first_any
    assert select(all_of_them, "Code") is first_any


def test_where_no_profile_covers_a_label_none_is_chosen() -> None:
    only = profile(match_labels=["code"])
    assert select([only], "general") is None
    assert select([], "general") is None


def test_a_profile_by_its_id() -> None:
    one, two = profile(id="one"), profile(id="two")
    assert by_id([one, two], "two") is two
    assert by_id([one, two], "three") is None


# --- Defaults ----------------------------------------------------------------------------------


def test_defaults() -> None:
    plain = profile(criteria=[judged()])
    assert (plain.scale.min, plain.scale.max, plain.quality_risk_threshold) == (0, 100, 40)
    assert plain.judge.prompt == "judge_prompt"
    assert plain.criteria[0].max_points == 25


def test_criteria_by_who_scores_them() -> None:
    review, lean = profile(), rules_profile()
    assert [c.id for c in review.judge_criteria] == ["logical_flow", "consistency"]
    assert review.rule_criteria == ()
    assert [c.id for c in lean.rule_criteria] == ["tool_count"]
    assert lean.judge_criteria == ()


def test_a_judge_s_profile_may_have_no_criteria() -> None:
    assert profile(criteria=[]).criteria == ()


# --- Refusals ----------------------------------------------------------------------------------


def test_an_unknown_scorer_names_those_that_exist() -> None:
    (problem,) = criterion_problems(ruled("vibes"), method="heuristic")
    allowed = ", ".join(["judge", *sorted(SCORERS)])
    assert problem == f"criteria.0.scorer: unknown scorer 'vibes'; allowed: {allowed}"


@pytest.mark.parametrize("weight", [0, -1, -0.001])
def test_a_weight_must_be_above_zero(weight: float) -> None:
    (problem,) = criterion_problems(judged(weight=weight))
    assert problem == f"criteria.0.weight: Input should be greater than 0 (got {weight})"


@pytest.mark.parametrize("weight", [NAN, INF, -INF])
def test_a_weight_must_be_finite(weight: float) -> None:
    (problem,) = criterion_problems(judged(weight=weight))
    assert problem == f"criteria.0.weight: Input should be a finite number (got {weight})"


@pytest.mark.parametrize("threshold", [-1, 101, NAN, INF])
def test_a_threshold_lies_on_0_to_100(threshold: float) -> None:
    (problem,) = problems(quality_risk_threshold=threshold)
    assert problem.startswith("quality_risk_threshold: Input should be ")
    assert "0" in problem
    assert problem.endswith(f"(got {threshold})")


def test_an_unknown_method_names_those_that_exist() -> None:
    (problem,) = problems(method="vibes")
    assert problem.startswith("method: ")
    assert all(f"'{known}'" in problem for known in ("heuristic", "llm"))
    assert problem.endswith("(got 'vibes')")


def test_a_rule_criterion_under_llm_is_refused() -> None:
    (problem,) = problems(criteria=[judged(), ruled()])
    assert problem == "criteria: method llm allows judge criteria only, not ['tool_count']"


@pytest.mark.parametrize("criteria", [[judged("flow")], [ruled(), judged("flow")], []])
def test_heuristic_takes_rule_scorers_and_needs_one(criteria: list[dict[str, Any]]) -> None:
    (problem,) = problems(method="heuristic", criteria=criteria)
    ids = [c["id"] for c in criteria]
    assert problem == (
        f"criteria: method heuristic needs rule scorers and allows nothing else, got {ids}"
    )


def test_ids_of_criteria_are_unique() -> None:
    twice = [judged("b"), judged("a"), judged("b"), judged("a"), judged("c")]
    assert problems(criteria=twice) == ["criteria: ids must be unique, twice: a, b"]


@pytest.mark.parametrize("points", [0, -1, 101])
def test_max_points_have_a_range(points: int) -> None:
    (problem,) = criterion_problems(judged(max_points=points))
    assert problem.startswith("criteria.0.max_points: Input should be ")
    assert problem.endswith(f"(got {points})")


def test_max_points_from_1_to_100() -> None:
    ends = profile(criteria=[judged("a", max_points=1), judged("b", max_points=100)])
    assert [c.max_points for c in ends.criteria] == [1, 100]


def test_max_points_are_the_judge_s_matter() -> None:
    (problem,) = criterion_problems(ruled(max_points=25), method="heuristic")
    assert problem == "criteria.0: max_points is for criteria of the judge only"


@pytest.mark.parametrize("scale", [{"min": 50, "max": 50}, {"min": 60, "max": 50}])
def test_a_scale_has_its_ends_in_order(scale: dict[str, int]) -> None:
    low, high = scale["min"], scale["max"]
    assert problems(scale=scale) == [f"scale: min {low} must be below max {high}"]


@pytest.mark.parametrize(("scale", "key"), [({"min": -1}, "min"), ({"max": 101}, "max")])
def test_a_scale_lies_within_0_to_100(scale: dict[str, int], key: str) -> None:
    (problem,) = problems(scale=scale)
    assert problem.startswith(f"scale.{key}: Input should be ")


@pytest.mark.parametrize("version", [0, -1, 2**31])
def test_a_version_is_a_positive_integer_that_can_be_stored(version: int) -> None:
    (problem,) = problems(version=version)
    assert problem.startswith("version: Input should be ")
    assert problem.endswith(f"(got {version})")


@pytest.mark.parametrize("bad_id", ["", "a b", "a/b", "ä", "x" * 65, "a\n"])
def test_ids_are_plain(bad_id: str) -> None:
    (problem,) = problems(id=bad_id)
    assert problem.startswith("id: String should match pattern '^[A-Za-z0-9_-]{1,64}$'")
    (problem,) = criterion_problems(judged(bad_id))
    assert problem.startswith("criteria.0.id: String should match pattern")


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_prompt_s_name_has_a_length(name: str) -> None:
    (problem,) = problems(judge={"prompt": name})
    assert problem.startswith("judge.prompt: String should have at ")
    assert profile(judge={"prompt": "x" * 64}).judge.prompt == "x" * 64
    assert profile(judge={"prompt": "p"}).judge.prompt == "p"


def test_a_profile_needs_a_label() -> None:
    (problem,) = problems(match_labels=[])
    assert problem.startswith("match_labels: ")
    (problem,) = problems(match_labels="simple")
    assert problem.startswith("match_labels: ")


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("treshold", {"treshold": 40}),
        ("judge.promt", {"judge": {"promt": "judge_prompt"}}),
        ("scale.mid", {"scale": {"mid": 1}}),
        ("criteria.0.wieght", {"criteria": [judged(wieght=1)]}),
    ],
)
def test_a_misspelt_key_is_refused(where: str, changes: dict[str, Any]) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(f"{where}: Extra inputs are not permitted")


def test_missing_keys_are_named() -> None:
    with pytest.raises(ProfileInvalid) as refusal:
        parse_profile({"criteria": [{"id": "a"}]})
    assert refusal.value.problems == [
        "id: Field required",
        "version: Field required",
        "match_labels: Field required",
        "method: Field required",
        "criteria.0.weight: Field required",
        "criteria.0.scorer: Field required",
    ]


@pytest.mark.parametrize("raw", [None, "text", ["a list"], 7])
def test_what_is_no_mapping_is_refused(raw: Any) -> None:
    with pytest.raises(ProfileInvalid) as refusal:
        parse_profile(raw)
    (problem,) = refusal.value.problems
    assert problem.endswith(f"(got {raw!r})")
