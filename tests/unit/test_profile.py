"""Judge profiles: what is accepted, what is refused and how it is told, which one is chosen."""

from typing import Any

import pytest

from consumer.config import load_profiles
from consumer.resources import resource
from consumer.scoring.patterns import compiled
from consumer.scoring.profile import ProfileInvalid, Seat, by_id, parse_profile, select
from consumer.scoring.scorers import SCORERS
from tests.unit.builders import (
    gated,
    judged,
    profile,
    raw_profile,
    ruled,
    rules_profile,
    two_tier_profile,
)

BANDS = "best_up_to_s, good_up_to_s, fair_up_to_s"
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
    both = {"id": "both", "weight": 1, "scorers": [{"scorer": "judge"}, {"scorer": "tool_count"}]}
    hybrid = profile(method="hybrid", criteria=[judged("flow"), ruled(), both])
    assert [c.id for c in hybrid.judge_criteria] == ["flow", "both"]
    assert [(c.id, c.by_judge, c.by_rules) for c in hybrid.criteria] == [
        ("flow", True, False),
        ("tool_count", False, True),
        ("both", True, True),
    ]
    assert [[u.scorer for u in c.uses] for c in hybrid.criteria] == [
        ["judge"],
        ["tool_count"],
        ["judge", "tool_count"],
    ]
    assert rules_profile().judge_criteria == ()


def test_disqualifiers_by_who_finds_them() -> None:
    review = profile(disqualifiers=["It is rude.", "pattern:rm -rf", "pattern:sudo"])
    assert review.judge_disqualifiers == ("It is rude.",)
    assert review.disqualifying_patterns == ("rm -rf", "sudo")


def test_profiles_are_values() -> None:
    banded = ruled("latency_band", params={"best_up_to_s": 4})
    assert rules_profile(banded) == rules_profile(banded)
    assert len({rules_profile(banded), rules_profile(banded), rules_profile()}) == 2


def test_a_judge_s_profile_may_have_no_criteria() -> None:
    assert profile(criteria=[]).criteria == ()


# --- Refusals ----------------------------------------------------------------------------------


def test_an_unknown_scorer_names_those_that_exist() -> None:
    (problem,) = criterion_problems(ruled("vibes"), method="heuristic")
    allowed = ", ".join(["judge", *sorted(SCORERS)])
    assert problem == f"criteria.0.scorer: unknown scorer 'vibes'; allowed: {allowed}"


@pytest.mark.parametrize("weight", [0, -1, -0.001, 5e-324, 0.000_000_9])
def test_a_weight_has_a_least(weight: float) -> None:
    (problem,) = criterion_problems(judged(weight=weight))
    assert problem == (
        f"criteria.0.weight: Input should be greater than or equal to 0.000001 (got {weight})"
    )


@pytest.mark.parametrize("weight", [1_000_001, 1e308])
def test_a_weight_has_a_most(weight: float) -> None:
    (problem,) = criterion_problems(judged(weight=weight))
    assert problem == (
        f"criteria.0.weight: Input should be less than or equal to 1000000 (got {weight})"
    )


@pytest.mark.parametrize("weight", [NAN, INF, -INF])
def test_a_weight_must_be_finite(weight: float) -> None:
    (problem,) = criterion_problems(judged(weight=weight))
    assert problem == f"criteria.0.weight: Input should be a finite number (got {weight})"


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, 3])
def test_an_action_is_the_name_of_a_tool(name: Any) -> None:
    assert profile(actions=["kubernetes.pods_get", "think"]).actions[1] == "think"
    (problem,) = problems(actions=["think", name])
    assert problem.startswith("actions.1: ")


@pytest.mark.parametrize("threshold", [-1, 101, NAN, INF])
def test_a_threshold_lies_on_0_to_100(threshold: float) -> None:
    (problem,) = problems(quality_risk_threshold=threshold)
    assert problem.startswith("quality_risk_threshold: Input should be ")
    assert "0" in problem or "finite" in problem
    assert problem.endswith(f"(got {threshold})")


def test_an_unknown_method_names_those_that_exist() -> None:
    (problem,) = problems(method="vibes")
    assert problem.startswith("method: ")
    assert all(f"'{known}'" in problem for known in ("heuristic", "llm"))
    assert problem.endswith("(got 'vibes')")


def test_a_rule_criterion_under_llm_is_refused() -> None:
    (problem,) = problems(criteria=[judged(), ruled()])
    assert problem == (
        "criteria: method llm takes judge criteria only; got by rules: ['tool_count'], "
        "by the judge: ['logical_flow'], gates: []"
    )


@pytest.mark.parametrize(
    ("method", "criteria", "gates", "takes"),
    [
        ("heuristic", [judged("flow")], [], "rule scorers, and nothing else"),
        ("heuristic", [ruled(), judged("flow")], [], "rule scorers, and nothing else"),
        ("heuristic", [], [gated()], "rule scorers, and nothing else"),
        ("llm", [ruled()], [], "judge criteria only"),
        ("hybrid", [ruled()], [], "rule scorers and judge criteria"),
        ("hybrid", [judged()], [gated()], "rule scorers and judge criteria"),
        ("hybrid", [], [], "rule scorers and judge criteria"),
        ("two_tier", [ruled(), judged()], [], "gates and criteria"),
        ("two_tier", [], [gated()], "gates and criteria"),
    ],
)
def test_a_method_takes_certain_criteria(
    method: str, criteria: list[dict[str, Any]], gates: list[dict[str, Any]], takes: str
) -> None:
    rules = [c["id"] for c in criteria if c["scorer"] != "judge"]
    asked = [c["id"] for c in criteria if c["scorer"] == "judge"]
    assert problems(method=method, criteria=criteria, gates=gates) == [
        (
            f"criteria: method {method} takes {takes}; got by rules: {rules}, "
            f"by the judge: {asked}, gates: {[g['id'] for g in gates]}"
        )
    ]


def test_a_criterion_of_judge_and_rules_is_neither_llm_nor_heuristic() -> None:
    both = {"id": "a", "weight": 1, "scorers": [{"scorer": "judge"}, {"scorer": "tool_count"}]}
    for method in ("llm", "heuristic"):
        (problem,) = problems(method=method, criteria=[both])
        assert "got by rules: ['a'], by the judge: ['a']" in problem
    assert profile(method="hybrid", criteria=[both]).needs_judge


@pytest.mark.parametrize(
    ("by", "asks"),
    [
        (profile(), True),
        (profile(criteria=[]), True),
        (rules_profile(), False),
        (two_tier_profile(), False),
        (two_tier_profile(judged()), True),
    ],
)
def test_whether_a_judge_is_asked(by: Any, asks: bool) -> None:
    assert by.needs_judge is asks


def test_ids_of_criteria_are_unique() -> None:
    twice = [judged("b"), judged("a"), judged("b"), judged("a"), judged("c")]
    assert problems(criteria=twice) == ["criteria: ids must be unique, twice: a, b"]


def test_ids_of_gates_are_unique() -> None:
    twice = [gated(), gated("latency_band"), gated()]
    assert problems(gates=twice) == ["gates: ids must be unique, twice: tool_count"]


@pytest.mark.parametrize("points", [0, -1, 101])
def test_max_points_have_a_range(points: int) -> None:
    (problem,) = criterion_problems(judged(max_points=points))
    assert problem.startswith("criteria.0.max_points: Input should be ")
    assert problem.endswith(f"(got {points})")


def test_max_points_from_1_to_100() -> None:
    ends = profile(criteria=[judged("a", max_points=1), judged("b", max_points=100)])
    assert [c.max_points for c in ends.criteria] == [1, 100]


def test_max_points_are_the_judge_s_matter() -> None:
    (problem,) = criterion_problems(ruled(max_points=24), method="heuristic")
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


# --- Who judges --------------------------------------------------------------------------------


def test_one_default_judge_is_asked_once_unless_told_otherwise() -> None:
    choice = profile().judge
    assert choice.seats == (Seat(provider="", model=""),)
    assert (choice.samples, choice.adaptive_within) == (1, None)
    assert (choice.min_verified_quotes, choice.on_budget_exhausted) == (0, "fail")


def test_a_profile_may_name_its_judge_or_a_panel() -> None:
    own = profile(judge={"provider": "main", "model": "judge-1", "samples": 3})
    assert own.judge.seats == (Seat(provider="main", model="judge-1"),)
    seats = [{"provider": "main"}, {"provider": "other", "model": "judge-2"}, {}]
    assert profile(judge={"panel": seats}).judge.seats == (
        Seat(provider="main"),
        Seat(provider="other", model="judge-2"),
        Seat(),
    )


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"samples": 0}, "judge.samples: Input should be greater than or equal to 1"),
        ({"samples": 11}, "judge.samples: Input should be less than or equal to 10"),
        (
            {"panel": [{"model": str(n)} for n in range(6)]},
            "judge.panel: Tuple should have at most",
        ),
        ({"adaptive_within": -1, "samples": 2}, "judge.adaptive_within: Input should be greater"),
        ({"adaptive_within": 101, "samples": 2}, "judge.adaptive_within: Input should be less"),
        ({"adaptive_within": NAN, "samples": 2}, "judge.adaptive_within: Input should be "),
        ({"min_verified_quotes": 1.1}, "judge.min_verified_quotes: Input should be less"),
        (
            {"on_budget_exhausted": "skip"},
            "judge.on_budget_exhausted: Input should be 'rules_only'",
        ),
        ({"model": "gpt\x1b[2J"}, "judge.model: must be printable, in one line"),
        ({"provider": "x" * 65}, "judge.provider: String should have at most 64"),
        ({"model": "x" * 256}, "judge.model: String should have at most 255"),
        (
            {"panel": [{"model": "a"}], "model": "b"},
            "judge: panel: provider and model belong to each of its members",
        ),
        (
            {"panel": [{"model": "a"}], "provider": "b"},
            "judge: panel: provider and model belong to each of its members",
        ),
        (
            {"panel": [{"model": "a"}, {"model": "b"}, {"provider": "", "model": "a"}]},
            "judge: panel: its members must differ; give samples for more answers",
        ),
        (
            {"adaptive_within": 5},
            "judge: adaptive_within: needs samples or a panel to choose from",
        ),
        (
            {"adaptive_within": 5, "panel": [{"model": "a"}]},
            "judge: adaptive_within: needs samples or a panel to choose from",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_choice_of_judges_that_makes_no_sense_is_refused(
    choice: dict[str, Any], told: str
) -> None:
    (problem,) = problems(judge=choice)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    "choice",
    [
        {"samples": 10, "adaptive_within": 100},
        {"samples": 2, "adaptive_within": 0},
        {"panel": [{"model": str(n)} for n in range(5)], "adaptive_within": 5},
        {"panel": [{"model": "a"}], "samples": 2, "adaptive_within": 5},
        {"min_verified_quotes": 1, "on_budget_exhausted": "rules_only"},
    ],
    ids=str,
)
def test_a_choice_of_judges_up_to_its_limits(choice: dict[str, Any]) -> None:
    assert profile(judge=choice).judge.model_dump(include=set(choice), mode="json").keys() == (
        choice.keys()
    )


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


# --- Scorers and their parameters --------------------------------------------------------------


@pytest.mark.parametrize(
    ("scorer", "params", "problem"),
    [
        (
            "tool_count",
            {"limit": 3},
            "params of tool_count: limit: Extra inputs are not permitted (got 3); allowed: none",
        ),
        (
            "latency_band",
            {"best": 3},
            (
                f"params of latency_band: best: Extra inputs are not permitted (got 3); "
                f"allowed: {BANDS}"
            ),
        ),
        (
            "latency_band",
            {"best_up_to_s": "soon"},
            (
                "params of latency_band: best_up_to_s: Input should be a valid number, unable to "
                f"parse string as a number (got 'soon'); allowed: {BANDS}"
            ),
        ),
        (
            "latency_band",
            {"best_up_to_s": 50},
            f"params of latency_band: the bands must rise: [50.0, 10, 20]; allowed: {BANDS}",
        ),
        ("judge", {"tone": "kind"}, "params: the judge takes none"),
    ],
)
def test_params_are_the_scorer_s(scorer: str, params: dict[str, Any], problem: str) -> None:
    method = "llm" if scorer == "judge" else "heuristic"
    alone = {"id": "a", "weight": 1, "scorer": scorer, "params": params}
    assert criterion_problems(alone, method) == [f"criteria.0: {problem}"]
    one_of = {"id": "a", "weight": 1, "scorers": [{"scorer": scorer, "params": params}]}
    assert criterion_problems(one_of, method) == [f"criteria.0.scorers.0: {problem}"]


def test_gates_take_params_as_criteria_do() -> None:
    assert problems(gates=[gated("latency_band", params={"best": 3})]) == [
        (
            "gates.0: params of latency_band: best: Extra inputs are not permitted (got 3); "
            f"allowed: {BANDS}"
        )
    ]
    for budget in ("token_budget", "cost_budget"):
        assert problems(gates=[gated(budget, params={"per_call": 3})]) == [
            f"gates.0: params: {budget} takes none"
        ]


@pytest.mark.parametrize(
    ("criterion", "problem"),
    [
        ({}, "needs either scorer or scorers"),
        ({"scorers": []}, "needs either scorer or scorers"),
        (
            {"scorer": "judge", "scorers": [{"scorer": "tool_count"}]},
            "needs either scorer or scorers",
        ),
        (
            {"scorers": [{"scorer": "tool_count"}], "params": {"a": 1}},
            "params: belong to each of the scorers",
        ),
        (
            {"scorers": [{"scorer": "judge"}, {"scorer": "tool_count"}, {"scorer": "judge"}]},
            "scorers: the judge is asked once",
        ),
        (
            {"scorers": [{"scorer": "tool_count"}], "max_points": 10},
            "max_points is for criteria of the judge only",
        ),
    ],
)
def test_a_criterion_is_scored_one_way(criterion: dict[str, Any], problem: str) -> None:
    told = criterion_problems({"id": "a", "weight": 1, **criterion}, method="hybrid")
    assert told == [f"criteria.0: {problem}"]


def test_an_unknown_scorer_among_several_names_those_that_exist() -> None:
    (problem,) = criterion_problems({"id": "a", "weight": 1, "scorers": [{"scorer": "vibes"}]})
    assert problem.startswith("criteria.0.scorers.0.scorer: unknown scorer 'vibes'; allowed: judge")


def test_max_points_may_be_given_where_the_judge_has_a_say() -> None:
    both = [{"scorer": "tool_count"}, {"scorer": "judge"}]
    mixed = {"id": "a", "weight": 1, "scorers": both, "max_points": 10}
    assert profile(method="hybrid", criteria=[mixed]).criteria[0].max_points == 10


# --- Gates and disqualifiers -------------------------------------------------------------------


@pytest.mark.parametrize("check", ["vibes", "judge"])
def test_an_unknown_check_names_those_that_exist(check: str) -> None:
    allowed = ", ".join(["token_budget", "cost_budget", *sorted(SCORERS)])
    assert problems(gates=[gated(check)]) == [
        f"gates.0.check: unknown check {check!r}; allowed: {allowed}"
    ]


def test_a_gate_s_threshold_is_a_score_or_a_budget() -> None:
    (problem,) = problems(gates=[gated("tool_count", 100.5)])
    assert problem == "gates.0: threshold: a score is 0-100 (got 100.5)"
    (problem,) = problems(gates=[gated("tool_count", -1)])
    assert problem.startswith("gates.0.threshold: Input should be greater than or equal to 0")
    big = profile(gates=[gated("tool_count", 100), gated("token_budget", 500_000)])
    assert [gate.threshold for gate in big.gates] == [100, 500_000]


@pytest.mark.parametrize(
    ("disqualifier", "problem"),
    [
        ("pattern:(", "not a usable pattern: missing ): ( (RE2 syntax)"),
        ("pattern:(?=a)", "not a usable pattern: invalid perl operator: (?= (RE2 syntax)"),
        ("pattern:", "the pattern '' matches the empty text, so it is found everywhere"),
        ("pattern:a*", "the pattern 'a*' matches the empty text, so it is found everywhere"),
    ],
)
def test_a_disqualifying_pattern_must_be_usable(disqualifier: str, problem: str) -> None:
    assert problems(disqualifiers=["It is rude.", disqualifier]) == [f"disqualifiers: {problem}"]


def test_a_disqualifier_says_something() -> None:
    (problem,) = problems(disqualifiers=[""])
    assert problem.startswith("disqualifiers.0: String should have at least 1 character")


@pytest.mark.parametrize(
    "changes",
    [
        {"disqualifiers": [f"pattern:never{n}" for n in range(101)]},
        {
            "disqualifiers": [f"pattern:never{n}" for n in range(50)],
            "gates": [
                {
                    "id": "shape",
                    "check": "structure",
                    "threshold": 1,
                    "params": {
                        "prohibited": [f"nor{n}" for n in range(25)],
                        "required_sections": [f"pattern:either{n}" for n in range(26)],
                    },
                }
            ],
        },
    ],
)
def test_patterns_are_counted_before_one_is_compiled(changes: dict[str, Any]) -> None:
    before = compiled.cache_info().misses
    assert problems(**changes) == ["it holds 101 patterns; at most 100 are allowed"]
    assert compiled.cache_info().misses == before


def test_a_long_disqualifying_pattern_is_refused() -> None:
    (problem,) = problems(disqualifiers=["pattern:" + "a" * 1001])
    assert problem == "disqualifiers: a pattern has 1001 characters; at most 1000 are allowed"


def test_only_patterns_disqualify_where_no_judge_is_asked() -> None:
    lean = {"method": "heuristic", "criteria": [ruled()]}
    assert problems(**lean, disqualifiers=["It is rude.", "pattern:sudo"]) == [
        "disqualifiers: method heuristic asks no judge; pattern: is allowed"
    ]
    assert profile(**lean, disqualifiers=["pattern:sudo"]).disqualifying_patterns == ("sudo",)
    tiers = {"method": "two_tier", "criteria": [ruled()], "gates": [gated()]}
    assert problems(**tiers, disqualifiers=["It is rude."]) == [
        "disqualifiers: method two_tier asks no judge; pattern: is allowed"
    ]


# --- Keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "changes", "allowed"),
    [
        (
            "treshold",
            {"treshold": 40},
            (
                "id, version, name, match_labels, method, criteria, gates, judge_anyway, "
                "disqualifiers, scale, quality_risk_threshold, judge, actions"
            ),
        ),
        (
            "judge.promt",
            {"judge": {"promt": "judge_prompt"}},
            (
                "provider, model, prompt, samples, panel, adaptive_within, min_verified_quotes, "
                "on_budget_exhausted"
            ),
        ),
        (
            "judge.panel.0.modle",
            {"judge": {"panel": [{"modle": "judge-1"}]}},
            "provider, model",
        ),
        ("scale.mid", {"scale": {"mid": 1}}, "min, max"),
        (
            "criteria.0.wieght",
            {"criteria": [judged(wieght=1)]},
            "id, name, description, weight, scorer, params, scorers, max_points",
        ),
        (
            "criteria.0.scorers.0.parms",
            {"criteria": [{"id": "a", "weight": 1, "scorers": [{"scorer": "judge", "parms": {}}]}]},
            "scorer, params",
        ),
        (
            "gates.0.treshold",
            {"gates": [gated(treshold=1)]},
            "id, check, threshold, params, pass_if_not_applicable",
        ),
    ],
)
def test_a_misspelt_key_is_refused_and_the_allowed_are_named(
    where: str, changes: dict[str, Any], allowed: str
) -> None:
    (problem,) = problems(**changes)
    assert problem.startswith(f"{where}: Extra inputs are not permitted (got ")
    assert problem.endswith(f"; allowed: {allowed}")


def test_missing_keys_are_named() -> None:
    with pytest.raises(ProfileInvalid) as refusal:
        parse_profile({"criteria": [{"id": "a"}]})
    assert refusal.value.problems == [
        "id: Field required",
        "version: Field required",
        "match_labels: Field required",
        "method: Field required",
        "criteria.0.weight: Field required",
    ]


@pytest.mark.parametrize("raw", [None, "text", ["a list"], 7])
def test_what_is_no_mapping_is_refused(raw: Any) -> None:
    with pytest.raises(ProfileInvalid) as refusal:
        parse_profile(raw)
    (problem,) = refusal.value.problems
    assert problem.endswith(f"(got {raw!r})")
