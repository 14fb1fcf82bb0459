"""Who is asked how often, what is kept for the next attempt, and what judges tell of themselves."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from consumer.errors import (
    BudgetExhausted,
    JudgeHeld,
    JudgeNoAnswer,
    JudgeNotConfigured,
    JudgeRefused,
    JudgeUnavailable,
    JudgeUnreadable,
)
from consumer.judge import panel as module
from consumer.judge.line import Account
from consumer.judge.panel import Expected, Judge
from consumer.limits.breaker import State
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.ports import Completion, Errand
from consumer.scoring.criteria import JudgeSettings
from consumer.scoring.judgement import Judgement
from consumer.scoring.profile import Profile, Seat
from consumer.scoring.verdict import Verdict
from tests.unit.builders import (
    TEMPLATE,
    about,
    answer_json,
    completion,
    criterion_answer,
    profile,
    session,
)
from tests.unit.judges import (
    ERRAND,
    FakePrices,
    FakeProvider,
    FakeSpend,
    judge,
    limiter,
    line,
    measured,
    member,
)
from tests.unit.virtual_time import virtually

REVIEW = profile()
UNWELL = JudgeUnavailable("503", retry_after=60)


def giving(flow: int, consistency: int = 5) -> Completion:
    """An answer with these points, of 25 and of 10."""
    points = {"logical_flow": flow, "consistency": consistency}
    return completion(answer_json(criteria={i: criterion_answer(n) for i, n in points.items()}))


def total_of(verdict: Verdict) -> int:
    """A total that can be told from points at a glance."""
    return verdict.points["logical_flow"]


async def judged(asked: Judge, by: Profile = REVIEW, errand: Errand = ERRAND) -> Judgement:
    return await asked.judge(about(session()), by, total_of=total_of, errand=errand)


def sampling(count: int, **choice: Any) -> Profile:
    return profile(judge={"samples": count, **choice})


def panel(*names: str, **choice: Any) -> Profile:
    """A profile judged by these providers, with the model that they all have."""
    seats = [{"provider": name, "model": "judge-1"} for name in names]
    return profile(judge={"panel": seats, **choice})


# --- One judge ---------------------------------------------------------------------------------


async def test_one_sample_of_the_default_judge() -> None:
    judgement = await judged(judge(provider := FakeProvider([giving(7)])))
    (sample,) = judgement.samples
    assert judgement.totals == (7,)
    assert sample.request.contents == judgement.contents
    assert len(provider.calls) == 1


async def test_a_profile_s_own_prompt_is_used() -> None:
    provider = FakeProvider()
    short = "Short. " + TEMPLATE
    asked = judge(provider, prompts={"judge_prompt": TEMPLATE, "short_prompt": short})
    by = profile(judge={"prompt": "short_prompt"})
    settings = asked.settings(by)
    assert settings is not None
    assert settings.prompt == short
    await judged(asked, by)
    assert provider.calls[0].prompt.startswith("Short. Judge this:")


async def test_a_profile_s_own_judge_is_asked() -> None:
    default, own = FakeProvider(), FakeProvider(name="own", model="judge-2")
    by = profile(judge={"provider": "own", "model": "judge-2"})
    judgement = await judged(judge(default, own), by)
    assert (len(default.calls), judgement.samples[0].provider) == (0, "own")


async def test_a_judge_that_is_not_configured_cannot_be_asked() -> None:
    told = "profile 'review' needs a judge and no LLM provider is configured"
    with pytest.raises(JudgeNotConfigured, match=told):
        await judged(judge())
    with pytest.raises(JudgeNotConfigured):
        await judged(judge(FakeProvider()), panel("main", "other"))


# --- Samples and panels ------------------------------------------------------------------------


async def test_so_many_samples_as_the_profile_says() -> None:
    provider = FakeProvider([giving(10), giving(14), giving(12)])
    judgement = await judged(judge(provider), sampling(3))
    assert judgement.totals == (10, 14, 12)
    assert [sample.verdict.points["logical_flow"] for sample in judgement.samples] == [10, 14, 12]
    assert len({sample.nonce for sample in judgement.samples}) == 3


@virtually
async def test_samples_are_taken_side_by_side() -> None:
    provider = FakeProvider(takes_s=10)
    await judged(judge(provider), sampling(3))
    assert provider.times == [0, 0, 0]


async def test_each_member_of_a_panel_is_asked_as_often() -> None:
    one, other = FakeProvider([giving(10)]), FakeProvider([giving(20)], name="other")
    judgement = await judged(judge(one, other), panel("main", "other", samples=2))
    assert [sample.provider for sample in judgement.samples] == ["main", "main", "other", "other"]
    assert judgement.totals == (10, 10, 20, 20)
    assert (len(one.calls), len(other.calls)) == (2, 2)


# The threshold of risk is 40, and so far as here from a total of 15.
@pytest.mark.parametrize(
    ("within", "samples"), [(24.9, 1), (25, 3), (26, 3)], ids=["beyond", "at", "near"]
)
@pytest.mark.parametrize("threshold", [40, 0], ids=["below", "above"])
async def test_more_is_asked_only_near_the_threshold(
    within: float, samples: int, threshold: int
) -> None:
    flow = 15 if threshold else 25
    provider = FakeProvider([giving(flow)])
    by = profile(judge={"samples": 3, "adaptive_within": within}, quality_risk_threshold=threshold)
    judgement = await judged(judge(provider), by)
    assert (len(judgement.samples), len(provider.calls)) == (samples, samples)


async def test_the_first_sample_of_an_adaptive_panel_is_the_first_member_s() -> None:
    one, other = FakeProvider([giving(5)]), FakeProvider(name="other")
    far, near = (panel("main", "other", adaptive_within=n) for n in (10, 40))
    assert (await judged(judge(one, other), far)).samples[0].provider == "main"
    assert (len(one.calls), len(other.calls)) == (1, 0)
    judgement = await judged(judge(one, other), near)
    assert [sample.provider for sample in judgement.samples] == ["main", "other"]


# --- Trouble -----------------------------------------------------------------------------------


@virtually
async def test_what_is_paid_for_is_kept_for_the_next_attempt() -> None:
    one = FakeProvider([giving(10)])
    other = FakeProvider([UNWELL, giving(20)], name="other")
    asked, by = judge(one, other), panel("main", "other")
    with pytest.raises(JudgeUnavailable):
        await judged(asked, by)
    judgement = await judged(asked, by)
    assert judgement.totals == (10, 20)
    assert (len(one.calls), len(other.calls)) == (1, 2)


@virtually
async def test_a_failure_is_told_when_all_have_ended() -> None:
    one, other = FakeProvider([UNWELL]), FakeProvider([giving(20)], name="other", takes_s=30)
    asked, by = judge(one, other), panel("main", "other")
    with pytest.raises(JudgeUnavailable):
        await judged(asked, by)
    one.script = [giving(10)]
    assert (await judged(asked, by)).totals == (10, 20)
    assert len(other.calls) == 1


@virtually
async def test_an_adaptive_first_sample_is_kept_too() -> None:
    one, other = FakeProvider([giving(10)]), FakeProvider([UNWELL, giving(20)], name="other")
    asked, by = judge(one, other), panel("main", "other", adaptive_within=100)
    with pytest.raises(JudgeUnavailable):
        await judged(asked, by)
    assert (await judged(asked, by)).totals == (10, 20)
    assert len(one.calls) == 1


async def test_nothing_is_kept_of_what_was_answered() -> None:
    provider = FakeProvider([giving(10), giving(20)])
    asked = judge(provider)
    assert (await judged(asked)).totals == (10,)
    assert (await judged(asked)).totals == (20,)


@virtually
async def test_nothing_is_kept_for_another_request() -> None:
    one, other = FakeProvider([giving(10), giving(11)]), FakeProvider([UNWELL], name="other")
    asked, by = judge(one, other), panel("main", "other")
    with pytest.raises(JudgeUnavailable):
        await judged(asked, by)
    other.script = [giving(20)]
    another = replace(ERRAND, request_id=UUID(int=2))
    assert (await judged(asked, by, another)).totals == (11, 20)
    assert (await judged(asked, by)).totals == (10, 20)


@virtually
async def test_of_too_many_requests_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_REQUESTS", 2)
    one, other = FakeProvider([giving(10)]), FakeProvider([UNWELL], name="other")
    asked, by = judge(one, other), panel("main", "other")
    errands = [replace(ERRAND, request_id=UUID(int=n)) for n in (1, 2, 3)]
    for errand in (*errands, errands[2]):  # the last one a second time: it has its place
        with pytest.raises(JudgeUnavailable):
            await judged(asked, by, errand)
    assert len(one.calls) == 3
    other.script = [giving(20)]
    await judged(asked, by, errands[1])
    assert len(one.calls) == 3
    await judged(asked, by, errands[0])
    assert len(one.calls) == 4


@virtually
async def test_of_too_much_that_was_sent_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = FakeProvider([giving(10)]), FakeProvider([UNWELL], name="other")
    asked, by = judge(one, other), panel("main", "other")
    size = (await judged(judge(FakeProvider()))).samples[0].request.size
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", int(2.5 * size))
    for n in (1, 2, 3):
        with pytest.raises(JudgeUnavailable):
            await judged(asked, by, replace(ERRAND, request_id=UUID(int=n)))
    assert len(asked._kept) == 2


@virtually
async def test_no_request_under_way_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_REQUESTS", 1)
    one = FakeProvider([giving(10)], takes_s=1)
    other = FakeProvider([BudgetExhausted("no money")], name="other")
    asked, by = judge(one, other), panel("main", "other")
    errands = [replace(ERRAND, request_id=UUID(int=n)) for n in (1, 2, 3)]
    asking = [judged(asked, by, errand) for errand in errands]
    ends = await asyncio.gather(*asking, return_exceptions=True)
    assert ["paid for before" in str(end) for end in ends] == [True] * 3
    assert [type(end) for end in ends] == [BudgetExhausted] * 3


@pytest.mark.parametrize("error", [JudgeRefused("filtered"), BudgetExhausted("no money")])
@virtually
async def test_what_a_member_says_for_good_is_told_and_nothing_is_kept(error: Exception) -> None:
    one, other = FakeProvider([giving(10)]), FakeProvider([error], name="other")
    asked, by = judge(one, other), panel("main", "other")
    for calls in (1, 2):
        with pytest.raises(type(error)):
            await judged(asked, by)
        assert len(one.calls) == calls


@virtually
async def test_what_a_lost_attempt_was_answered_is_kept() -> None:
    one, other = FakeProvider([giving(10)]), FakeProvider(name="other", takes_s=100)
    asked, by = judge(one, other), panel("main", "other")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(judged(asked, by), 50)
    await judged(asked, by)
    assert len(one.calls) == 1


@virtually
async def test_what_any_member_answered_in_vain_is_told() -> None:
    held, unreadable = JudgeHeld("left alone"), JudgeUnreadable("no JSON")
    for script, paid in ((unreadable, True), (JudgeNoAnswer("in time"), False)):
        one, other = FakeProvider([held]), FakeProvider([script], name="other")
        with pytest.raises(JudgeHeld) as raised:
            await judged(judge(one, other), panel("main", "other"))
        assert raised.value.paid is paid


@virtually
async def test_what_was_paid_before_the_budget_ended_is_told() -> None:
    one = FakeProvider([giving(10)])
    other = FakeProvider([BudgetExhausted("no money")], name="other")
    asked = judge(one, other)
    with pytest.raises(BudgetExhausted) as raised:
        await judged(asked, panel("main", "other"))
    paid = giving(10)
    assert str(raised.value) == (
        "no money; paid for before and not used: samples 1, "
        f"input_tokens {paid.input_tokens}, output_tokens {paid.output_tokens}, cost_usd 1.2"
    )
    with pytest.raises(BudgetExhausted, match=r"^no money$"):
        await judged(judge(FakeProvider([BudgetExhausted("no money")])))


@virtually
async def test_who_takes_longer_than_the_errand_has_is_unavailable() -> None:
    slow = FakeProvider(takes_s=100)
    spend = FakeSpend()
    asked = judge(member(slow, line=line(account=Account(spend=spend, cap_usd=9))))
    with pytest.raises(JudgeUnavailable, match=r"^no verdict within 90 s$"):
        await judged(asked, sampling(2), replace(ERRAND, left_s=90))
    assert asyncio.get_running_loop().time() == pytest.approx(90)
    (one,) = asked.lines
    # Nothing is left behind: no slot, no reservation, no mark against the provider.
    assert (one.concurrency.in_flight, one.breaker.state) == (0, State.CLOSED)
    assert len(spend.settled) == len(spend.reserved) == 2


# --- What is known without asking --------------------------------------------------------------


def test_settings_name_what_can_change_a_score() -> None:
    asked = judge(FakeProvider(), FakeProvider(name="other", model="judge-2"))
    assert asked.settings(REVIEW) == JudgeSettings(
        seats=(("main", "judge-1"),), prompt=TEMPLATE, temperature=0.0, samples=1
    )
    seats = [{"provider": "other", "model": "judge-2"}, {"provider": "main", "model": "judge-1"}]
    assert asked.settings(profile(judge={"panel": seats, "samples": 4})) == JudgeSettings(
        seats=(("other", "judge-2"), ("main", "judge-1")),
        prompt=TEMPLATE,
        temperature=0.0,
        samples=4,
    )


def test_without_all_of_its_judges_a_profile_has_no_settings() -> None:
    asked, by = judge(FakeProvider()), panel("main", "other")
    assert asked.settings(by) is None
    assert (asked.knows(by), asked.knows(REVIEW)) == (False, True)
    assert not judge().knows(REVIEW)


@virtually
async def test_a_profile_is_held_with_any_of_its_judges() -> None:
    unwell = FakeProvider([JudgeUnavailable("503")], name="other")
    asked = judge(FakeProvider(), unwell)
    (sole, both) = panel("other"), panel("main", "other")
    assert not asked.held(both)
    for _ in range(5):
        with pytest.raises(JudgeUnavailable):
            await judged(asked, sole)
    assert (asked.held(sole), asked.held(both), asked.held(REVIEW)) == (True, True, False)
    assert not asked.held(panel("nobody"))
    with pytest.raises(JudgeHeld):
        await judged(asked, both)
    await asyncio.sleep(20)
    assert not asked.probing(both)
    await asyncio.sleep(10)
    assert (asked.probing(sole), asked.probing(both), asked.probing(REVIEW)) == (True, True, False)
    assert not asked.held(sole)


async def test_a_provider_s_line_is_one_for_all_its_models() -> None:
    shared = line()
    big, small = FakeProvider(model="judge-big"), FakeProvider(model="judge-small")
    other = member(FakeProvider(name="other"))
    asked = judge(member(big, line=shared), member(small, line=shared), other)
    assert asked.lines == (shared, other.line)
    assert Seat() in asked.members


@virtually
async def test_what_lines_do_is_measured() -> None:
    unwell = line(name="unwell", retry_delays_s=())
    busy = line(
        name="busy",
        concurrency=AdaptiveConcurrency(2),
        requests=limiter(60),
        tokens=limiter(6000),
    )
    slow = FakeProvider(name="busy", takes_s=10, max_output_tokens=300)
    failing = FakeProvider([JudgeUnavailable("503")], name="unwell")
    asked = judge(member(failing, line=unwell), member(slow, line=busy))
    for _ in range(5):
        with pytest.raises(JudgeUnavailable):
            await judged(asked)
    running = [asyncio.create_task(judged(asked, panel("busy"))) for _ in range(3)]
    await asyncio.sleep(0.5)
    asked.observe()

    def seen(metric: str, provider: str, **labels: str) -> float:
        return measured(f"judge_{metric}", provider=provider, **labels)

    assert (seen("breaker_state", "unwell"), seen("breaker_state", "busy")) == (2, 0)
    assert seen("concurrency_limit", "busy") == 2
    assert seen("concurrency_limit", "unwell") == 64
    assert seen("waiting", "busy", limit="slot") == 1
    # A prompt and its longest answer are more than the bucket holds: they leave a debt.
    assert seen("waiting", "busy", limit="tokens") == 1
    assert seen("waiting", "busy", limit="requests") == 0
    assert seen("in_flight", "busy") == 2
    assert seen("rate_available", "busy", limit="requests") == pytest.approx(8.5)
    assert seen("rate_available", "busy", limit="tokens") < 0
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await asyncio.sleep(30)
    asked.observe()
    assert seen("breaker_state", "unwell") == 1
    assert (seen("in_flight", "busy"), seen("waiting", "busy", limit="slot")) == (0, 0)


# --- What it may cost --------------------------------------------------------------------------


def test_each_expected_sample_is_as_long_as_it_may_be() -> None:
    one = FakeProvider()
    other = FakeProvider(name="other", max_output_tokens=500)
    by = panel("main", "other", samples=2)
    prices = FakePrices(read=0, written=1)
    first, again, *others = judge(one, other, prices=prices).expected(about(session()), by)
    assert first == again
    assert (first.output_tokens, first.usd) == (1000, 1.0)
    assert [(use.output_tokens, use.usd) for use in others] == [(500, 0.5)] * 2
    # Two bytes a token: the prompt is what a real one is, but for its nonce.
    assert 500 < first.input_tokens < 2000


def test_an_expected_prompt_is_no_longer_than_its_budget() -> None:
    small = member(FakeProvider(model="unheard-of"), context_window=2000)
    assert list(judge(small).expected(about(session()), REVIEW)) == [
        Expected(input_tokens=800, output_tokens=1000, usd=None)
    ]
