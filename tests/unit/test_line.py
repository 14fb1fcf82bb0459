"""One provider's line: retries, breaker, limits and account, and that nothing is ever lost."""

import asyncio
import gc
import weakref
from time import monotonic
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest

from consumer.errors import (
    BudgetExhausted,
    ContextOverflow,
    InternalError,
    JudgeHeld,
    JudgeNoAnswer,
    JudgeOverloaded,
    JudgeRateLimited,
    JudgeRefused,
    JudgeRejected,
    JudgeUnavailable,
    JudgeUnreadable,
    LeaseLost,
    NotReachable,
)
from consumer.judge import line as module
from consumer.judge.line import Account, Line, Question, Repetition
from consumer.limits.breaker import State
from consumer.limits.concurrency import AdaptiveConcurrency
from consumer.ports import ChatMessage, Completion, Errand, Sent
from tests.unit.builders import REQUEST_ID, completion
from tests.unit.judges import LEASE, FakePrices, FakeProvider, FakeSpend, limiter, line, measured
from tests.unit.virtual_time import virtually

PROMPT = "x" * 200  # a hundred tokens, as estimated
UNWELL = JudgeUnavailable("connection refused")
# What is no sign that the provider is unwell, nor that it is well.
TELLS_NOTHING = [
    JudgeRateLimited("429"),
    JudgeRefused("content filter"),
    ContextOverflow("too long"),
    InternalError("bad request"),
]


def question(left_s: float = 600, **changes: Any) -> Question:
    fields: dict[str, Any] = {
        "messages": (ChatMessage(role="user", text=PROMPT),),
        "schema": {"type": "object"},
        "max_tokens": 300,
        "temperature": 0.0,
        "errand": Errand(request_id=REQUEST_ID, lease_token=LEASE, left_s=left_s),
        "asked_at": monotonic(),
    }
    return Question(**{**fields, **changes})


def answering(*script: Completion | Exception, **changes: Any) -> FakeProvider:
    return FakeProvider(list(script) or [completion()], **changes)


async def ask(asked: Line, *script: Completion | Exception, **changes: Any) -> FakeProvider:
    """A call that ends as the script does."""
    provider = answering(*script)
    ends = script[-1] if script else None
    if isinstance(ends, Exception):
        with pytest.raises(type(ends)):
            await asked.ask(provider, question(**changes))
    else:
        await asked.ask(provider, question(**changes))
    return provider


async def fail(asked: Line, times: int, error: Exception = UNWELL) -> None:
    """So many failed calls, whatever comes of the last."""
    for _ in range(times):
        with pytest.raises(JudgeUnavailable):
            await asked.ask(answering(error), question())


async def opened() -> Line:
    """A line whose breaker has just opened."""
    asked = line(retry_delays_s=())
    await fail(asked, 5)
    assert state_of(asked) is State.OPEN
    return asked


def state_of(asked: Line) -> State:
    return asked.breaker.state


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancels, and waits for the end of it."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    return capture.entries


# --- What is sent ------------------------------------------------------------------------------


@virtually
async def test_the_question_is_passed_on_and_the_answer_back() -> None:
    before = measured("judge_call_seconds_count", provider="main", result="ok")
    provider = answering()
    told = await line().ask(provider, question())
    (call,) = provider.calls
    assert told == completion(sent=told.sent)
    assert call.messages == (ChatMessage(role="user", text=PROMPT),)
    assert (call.schema, call.max_tokens) == ({"type": "object"}, 300)
    assert measured("judge_call_seconds_count", provider="main", result="ok") == before + 1


def test_a_question_s_text_is_all_its_messages() -> None:
    said = ChatMessage(role="user", text="a"), ChatMessage(role="assistant", text="b")
    assert question(messages=said).text == "a\nb"


@virtually
async def test_a_repetition_goes_the_same_way_in_the_same_bytes() -> None:
    sent = Sent(path="p", body=b"{}", dialect="none", max_tokens=300, temperature=None)
    asked = question()
    repetition = Repetition(sent=sent, text=PROMPT, errand=asked.errand, asked_at=asked.asked_at)
    provider, spend = answering(UNWELL, completion()), FakeSpend()
    account = Account(spend=spend, cap_usd=9)
    told = await line(account=account).ask(provider, repetition)
    assert (provider.repeated, provider.calls) == ([sent, sent], [])
    assert told.sent == sent
    await line(account=account).ask(answering(), asked)
    assert len({one["amount_usd"] for one in spend.reserved}) == 1, "as much is set aside"


class Prompt(str):
    """A text of which one can tell whether it is still kept."""

    __slots__ = ("__weakref__",)


@virtually
async def test_nothing_keeps_a_prompt_once_it_is_answered() -> None:
    prompt = Prompt(PROMPT)
    kept = weakref.ref(prompt)
    messages = (ChatMessage(role="user", text=prompt),)
    gc.disable()  # a cycle would keep it until a collection that comes late
    try:
        await ask(line(), messages=messages)
        del prompt, messages
        assert kept() is None
    finally:
        gc.enable()


# --- Retries -----------------------------------------------------------------------------------


@virtually
async def test_the_schedule_of_retries() -> None:
    provider = await ask(line(), UNWELL, UNWELL, UNWELL, completion())
    assert provider.times == [0, 1, 3, 7]
    assert len({call.messages for call in provider.calls}) == 1


@virtually
async def test_after_the_last_retry_the_error_is_told() -> None:
    labels = {"provider": "main", "result": "JudgeUnavailable"}
    before = measured("judge_call_seconds_count", **labels)
    provider = answering(UNWELL)
    with pytest.raises(JudgeUnavailable) as raised:
        await line().ask(provider, question())
    assert raised.value is UNWELL
    assert provider.times == [0, 1, 3, 7]
    assert measured("judge_call_seconds_count", **labels) == before + 4


@virtually
async def test_a_line_may_have_no_schedule() -> None:
    provider = await ask(line(retry_delays_s=()), UNWELL)
    assert provider.times == [0]


@pytest.mark.parametrize(
    ("wished", "times"),
    [
        (None, [0, 1, 3, 7]),
        (0.0, [0, 1, 3, 7]),
        (0.5, [0, 0.5, 1, 1.5]),
        (1.0, [0, 1, 2, 3]),
        (3.0, [0, 3, 6, 9]),
        (10.0, [0, 10, 20, 30]),
    ],
)
@virtually
async def test_a_retry_after_takes_the_place_of_the_schedule(
    wished: float | None, times: list[float]
) -> None:
    busy = JudgeOverloaded("503", retry_after=wished)
    assert (await ask(line(), busy, busy, busy, completion())).times == times


@virtually
async def test_a_wish_of_more_than_ten_seconds_goes_back_to_the_queue() -> None:
    busy = JudgeRateLimited("429", retry_after=10.5)
    provider = answering(UNWELL, busy)
    with pytest.raises(JudgeRateLimited) as raised:
        await line().ask(provider, question())
    assert raised.value is busy
    assert provider.times == [0, 1]


@pytest.mark.parametrize(
    "changes", [{"left_s": 5}, {"left_s": 600, "asked_at": monotonic() - 595}], ids=["all", "rest"]
)
@virtually
async def test_a_wish_that_comes_too_late_goes_back_to_the_queue(changes: dict[str, Any]) -> None:
    busy = JudgeOverloaded("503", retry_after=6)
    assert (await ask(line(), busy, **changes)).times == [0]
    sooner = JudgeOverloaded("503", retry_after=2)
    assert (await ask(line(), sooner, completion(), left_s=5)).times == [0, 2]


@pytest.mark.parametrize(
    "error",
    [
        JudgeRejected("our key is refused"),
        JudgeRefused("content filter"),
        ContextOverflow("too long"),
        InternalError("bad request"),
        ZeroDivisionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@virtually
async def test_what_waiting_does_not_mend_is_not_tried_again(error: Exception) -> None:
    assert (await ask(line(), error)).times == [0]


# --- The breaker -------------------------------------------------------------------------------


@virtually
async def test_five_failed_calls_in_a_row_open_the_breaker() -> None:
    before = measured("judge_breaker_opened_total", provider="main")
    asked = line()
    for _ in range(4):
        # However often a call was tried, it is one.
        assert len((await ask(asked, UNWELL)).calls) == 4
    assert not asked.held
    with pytest.raises(JudgeHeld, match="judge main failed and is left alone: connection refused"):
        await asked.ask(answering(UNWELL), question())
    assert asked.held
    assert measured("judge_breaker_opened_total", provider="main") == before + 1


@virtually
async def test_while_the_breaker_is_open_nobody_is_asked() -> None:
    asked = await opened()
    provider = answering()
    with pytest.raises(JudgeHeld) as raised:
        await asked.ask(provider, question())
    assert str(raised.value) == "judge main is left alone"
    assert raised.value.retry_after == 5
    await asyncio.sleep(27)
    with pytest.raises(JudgeHeld) as raised:
        await asked.ask(provider, question())
    assert raised.value.retry_after == pytest.approx(3)
    assert provider.calls == []


@virtually
async def test_a_probe_makes_one_try_and_its_success_closes() -> None:
    asked = await opened()
    assert not asked.probing
    await asyncio.sleep(30)
    assert asked.probing
    assert not asked.held
    await ask(asked)
    assert state_of(asked) is State.CLOSED
    assert (asked.held, asked.probing) == (False, False)


@virtually
async def test_what_the_runbook_looks_for_is_said(logged: list[Any]) -> None:
    asked = await opened()
    assert [(said["event"], said["error_class"], said["error"]) for said in logged] == [
        ("breaker_opened", "JudgeUnavailable", "connection refused")
    ]
    await asyncio.sleep(30)
    await fail(asked, 1, JudgeOverloaded("too much to do"))
    assert logged[-1] == {
        "event": "breaker_opened",
        "log_level": "warning",
        "provider": "main",
        "error_class": "JudgeOverloaded",
        "error": "too much to do",
        "probe_in_s": 30,
    }
    errors = [f'error="{name}"' for name in ("JudgeUnavailable", "JudgeOverloaded")]
    told = generate_latest().decode()
    assert [f'scoring_judge_last_error{{{e},provider="main"}}' in told for e in errors] == [
        False,
        True,
    ]
    await asyncio.sleep(30)
    await ask(asked)
    await ask(asked)
    assert [said["event"] for said in logged] == ["breaker_opened"] * 2 + ["breaker_closed"]


@virtually
async def test_a_failed_probe_is_not_tried_again_and_opens() -> None:
    asked = Line(
        name="main",
        prices=FakePrices(),
        concurrency=AdaptiveConcurrency(8),
        breaker=(await opened()).breaker,
    )
    await asyncio.sleep(30)
    provider = answering(UNWELL)
    with pytest.raises(JudgeHeld):
        await asked.ask(provider, question())
    assert len(provider.calls) == 1
    assert state_of(asked) is State.OPEN


NO_ANSWER, UNREADABLE = JudgeNoAnswer("in time"), JudgeUnreadable("no JSON")


@pytest.mark.parametrize(
    ("script", "paid"),
    [([UNREADABLE], True), ([UNREADABLE, NO_ANSWER], True), ([NO_ANSWER], False)],
    ids=["unreadable", "unreadable, then none", "none"],
)
@virtually
async def test_an_error_tells_whether_its_call_was_answered_in_vain(
    script: list[Exception], paid: bool
) -> None:
    asked = line()
    for _ in range(4):
        with pytest.raises(JudgeNoAnswer) as raised:
            await asked.ask(answering(*script), question())
        assert raised.value.paid is paid
    with pytest.raises(JudgeHeld) as held:
        await asked.ask(answering(*script), question())
    assert held.value.paid is paid
    with pytest.raises(JudgeHeld) as held:  # not asked at all
        await asked.ask(answering(*script), question())
    assert not held.value.paid


@virtually
async def test_who_is_held_between_two_tries_was_answered_before() -> None:
    asked = line()
    between = asyncio.create_task(asked.ask(answering(UNREADABLE), question()))
    await asyncio.sleep(0.5)
    asked.retry_delays_s = ()
    await fail(asked, 5)
    with pytest.raises(JudgeHeld, match=r"^judge main is left alone$") as held:
        await between
    assert held.value.paid


@virtually
async def test_while_a_probe_is_under_way_others_are_held() -> None:
    asked = await opened()
    await asyncio.sleep(30)
    probe = asyncio.create_task(asked.ask(answering(takes_s=3), question()))
    await asyncio.sleep(1)
    assert (asked.held, asked.probing) == (True, False)
    other = answering()
    with pytest.raises(JudgeHeld) as raised:
        await asked.ask(other, question())
    assert (raised.value.retry_after, other.calls) == (5, [])
    await probe
    await ask(asked)


@virtually
async def test_a_cancelled_probe_leaves_room_for_the_next() -> None:
    asked = await opened()
    await asyncio.sleep(30)
    probe = asyncio.create_task(asked.ask(answering(takes_s=3), question()))
    await asyncio.sleep(1)
    await cancelled(probe)
    assert asked.probing
    await ask(asked)
    assert state_of(asked) is State.CLOSED


@pytest.mark.parametrize("error", TELLS_NOTHING, ids=lambda error: type(error).__name__)
@virtually
async def test_what_tells_nothing_neither_opens_nor_closes(error: Exception) -> None:
    asked = line(retry_delays_s=())
    for _ in range(6):
        await ask(asked, error)
    assert state_of(asked) is State.CLOSED
    await fail(asked, 4)
    await ask(asked, error)
    await fail(asked, 1)
    assert state_of(asked) is State.OPEN


@virtually
async def test_a_cancelled_call_neither_opens_nor_closes() -> None:
    asked = line(retry_delays_s=())
    await fail(asked, 4)
    for _ in range(6):
        task = asyncio.create_task(asked.ask(answering(takes_s=9), question()))
        await asyncio.sleep(1)
        await cancelled(task)
    assert state_of(asked) is State.CLOSED
    await fail(asked, 1)
    assert state_of(asked) is State.OPEN


@virtually
async def test_a_success_ends_the_row_of_failures() -> None:
    asked = line(retry_delays_s=())
    for _ in range(3):
        await fail(asked, 4)
        await ask(asked)
    assert state_of(asked) is State.CLOSED


@pytest.mark.parametrize(
    "error", [JudgeRejected("401"), JudgeOverloaded("503"), JudgeNoAnswer("nothing")]
)
@virtually
async def test_every_kind_of_unwell_counts(error: Exception) -> None:
    asked = line(retry_delays_s=())
    await fail(asked, 5, error)
    assert state_of(asked) is State.OPEN


@virtually
async def test_who_fails_once_others_opened_the_breaker_waits_no_longer() -> None:
    asked = line()
    late = answering(UNWELL, takes_s=1)
    task = asyncio.create_task(asked.ask(late, question()))
    await asyncio.sleep(0.5)
    await fail(asked, 5, JudgeRejected("401"))
    with pytest.raises(JudgeHeld):
        await task
    assert late.times == [0]


@virtually
async def test_who_waits_for_a_turn_while_the_breaker_opens_asks_nobody() -> None:
    asked = line(concurrency=AdaptiveConcurrency(1), retry_delays_s=())
    provider = answering(UNWELL, takes_s=1)
    calls = [asked.ask(provider, question()) for _ in range(9)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert provider.times == [0, 1, 2, 3, 4]
    assert [type(result) for result in results] == [JudgeUnavailable] * 4 + [JudgeHeld] * 5
    assert [str(result) for result in results[5:]] == ["judge main is left alone"] * 4


@virtually
async def test_who_waited_longer_than_the_breaker_was_open_is_no_second_probe() -> None:
    asked = line(concurrency=AdaptiveConcurrency(1))
    running = asyncio.create_task(asked.ask(answering(takes_s=100), question()))
    waiting = asyncio.create_task(asked.ask(late := answering(), question()))
    await asyncio.sleep(1)
    for _ in range(5):
        permit = asked.breaker.enter()
        assert permit is not None
        permit.failed()
    await running
    with pytest.raises(JudgeHeld, match=r"^judge main is left alone$"):
        await waiting
    assert (late.calls, asked.probing) == ([], True)
    assert asyncio.get_running_loop().time() == 100


# --- How many at a time ------------------------------------------------------------------------


@virtually
async def test_no_more_calls_at_a_time_than_the_limit() -> None:
    asked = line(concurrency=AdaptiveConcurrency(2))
    provider = answering(takes_s=1)
    await asyncio.gather(*(asked.ask(provider, question()) for _ in range(5)))
    assert provider.times == [0, 0, 1, 1, 2]
    assert asked.concurrency.in_flight == 0


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (JudgeRateLimited("429"), 4),
        (JudgeOverloaded("503"), 4),
        (JudgeNoAnswer("timeout"), 8),
        (JudgeRefused("content filter"), 8),
        (UNWELL, 8),
    ],
    ids=lambda value: type(value).__name__,
)
@virtually
async def test_congestion_halves_the_limit(error: Exception, limit: int) -> None:
    asked = line(concurrency=AdaptiveConcurrency(8), retry_delays_s=())
    await ask(asked, error)
    assert asked.concurrency.limit == limit


@virtually
async def test_answers_raise_the_limit() -> None:
    asked = line(concurrency=AdaptiveConcurrency(8, start=2))
    await ask(asked)
    assert asked.concurrency.limit == 2
    await ask(asked)
    assert asked.concurrency.limit == 3


@virtually
async def test_between_tries_no_slot_is_held() -> None:
    asked = line(concurrency=AdaptiveConcurrency(1))
    first, second = answering(UNWELL, completion()), answering(takes_s=5)
    one = asyncio.create_task(asked.ask(first, question()))
    two = asyncio.create_task(asked.ask(second, question()))
    await asyncio.gather(one, two)
    # The second call ran while the first one paused, and the first then had to wait for it.
    assert (second.calls[0].at, first.times) == (0, [0, 5])


@virtually
async def test_a_cancelled_call_gives_its_slot_back() -> None:
    asked = line(concurrency=AdaptiveConcurrency(1))
    running = asyncio.create_task(asked.ask(answering(takes_s=9), question()))
    waiting = asyncio.create_task(asked.ask(answering(takes_s=9), question()))
    await asyncio.sleep(1)
    assert (asked.concurrency.in_flight, asked.concurrency.waiting) == (1, 1)
    await cancelled(waiting)
    assert (asked.concurrency.in_flight, asked.concurrency.waiting) == (1, 0)
    await cancelled(running)
    assert asked.concurrency.in_flight == 0
    await ask(asked)


# --- How many a minute -------------------------------------------------------------------------


@virtually
async def test_every_try_is_a_request_of_the_minute_s() -> None:
    asked = line(requests=limiter(60))  # one a second, ten at once
    provider = answering(UNWELL, UNWELL, completion())
    await asyncio.gather(*(asked.ask(provider, question()) for _ in range(10)))
    assert provider.times == [0] * 10 + [1, 2]
    assert asked.requests is not None
    assert asked.requests.available == 0


@pytest.mark.parametrize(("read", "written"), [(10, 20), (900, 300)], ids=["less", "more"])
@virtually
async def test_tokens_are_charged_as_they_really_were(read: int, written: int) -> None:
    asked = line(tokens=limiter(6000))  # a hundred a second, a thousand at once
    assert asked.tokens is not None
    task = asyncio.create_task(
        asked.ask(
            answering(completion(input_tokens=read, output_tokens=written), takes_s=0.001),
            question(),
        )
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asked.tokens.available == pytest.approx(1000 - 400)
    await task
    assert asked.tokens.available == pytest.approx(1000 - read - written, abs=0.2)


@virtually
async def test_without_word_of_the_tokens_the_estimate_stays_charged() -> None:
    asked = line(tokens=limiter(6000))
    assert asked.tokens is not None
    await ask(asked, completion(input_tokens=0, output_tokens=0))
    assert asked.tokens.available == pytest.approx(1000 - 400)


@virtually
async def test_those_who_wait_for_tokens_go_on_as_soon_as_an_answer_was_short() -> None:
    asked = line(tokens=limiter(6000))
    provider = answering(completion(input_tokens=100, output_tokens=20), takes_s=1)
    big = question(max_tokens=900)  # all that passes at once
    await asyncio.gather(*(asked.ask(provider, big) for _ in range(2)))
    # After one second the first call turned out to be short; its estimate took ten.
    assert provider.times == [0, pytest.approx(1, abs=0.3)]


@virtually
async def test_who_is_cancelled_while_waiting_for_tokens_takes_nothing() -> None:
    asked = line(tokens=limiter(6000), account=account(spend := FakeSpend()))
    assert asked.tokens is not None
    asked.tokens.charge(5000)
    waiting = asyncio.create_task(asked.ask(provider := answering(), question()))
    await asyncio.sleep(1)
    assert asked.tokens.waiting == 1
    left = asked.tokens.available
    await cancelled(waiting)
    assert (asked.tokens.waiting, asked.concurrency.in_flight) == (0, 0)
    assert asked.tokens.available == left
    assert (provider.calls, spend.reserved) == ([], [])


@virtually
async def test_a_request_of_the_minute_s_taken_in_vain_is_given_back() -> None:
    asked = line(requests=limiter(6), tokens=limiter(6000))  # one request at once
    assert asked.requests is not None
    assert asked.tokens is not None
    asked.tokens.charge(5000)
    waiting = asyncio.create_task(asked.ask(answering(), question()))
    await asyncio.sleep(0.001)
    assert asked.requests.available == pytest.approx(0, abs=0.01)
    await cancelled(waiting)
    assert asked.requests.available == pytest.approx(1, abs=0.01)


# --- The account -------------------------------------------------------------------------------

# A tenth of a cent a token read, two tenths a token written.
PRICES = FakePrices(read=1.0, written=2.0)


def account(spend: FakeSpend) -> Account:
    return Account(spend=spend, cap_usd=7.5)


def costing(spend: FakeSpend, **changes: Any) -> Line:
    return line(account=account(spend), prices=PRICES, **changes)


@virtually
async def test_the_worst_is_reserved_and_the_truth_is_booked() -> None:
    spend = FakeSpend()
    read, written = (
        measured("judge_tokens_total", direction="input"),
        measured("judge_tokens_total", direction="output"),
    )
    usd = measured("judge_cost_usd_total")
    await ask(costing(spend), completion(input_tokens=90, output_tokens=50))
    assert spend.reserved == [
        {
            "provider": "main",
            "cap_usd": 7.5,
            "amount_usd": pytest.approx(0.1 + 0.6),
            "request_id": REQUEST_ID,
            "lease_token": LEASE,
        }
    ]
    assert spend.spent == [pytest.approx(0.09 + 0.1)]
    assert measured("judge_tokens_total", direction="input") == read + 90
    assert measured("judge_tokens_total", direction="output") == written + 50
    assert measured("judge_cost_usd_total") == pytest.approx(usd + 0.19)


@virtually
async def test_an_answer_that_does_not_tell_its_usage_is_booked_as_the_longest() -> None:
    before = measured("judge_unpriced_total")
    usd = measured("judge_cost_usd_total")
    spend = FakeSpend()
    await ask(costing(spend), completion(input_tokens=0, output_tokens=0))
    assert spend.spent == [pytest.approx(0.7)]
    assert measured("judge_unpriced_total") == before + 1
    assert measured("judge_cost_usd_total") == usd


@pytest.mark.parametrize(
    ("error", "usd"),
    [
        (UNWELL, 0),
        (JudgeOverloaded("503"), 0),
        (JudgeRateLimited("429"), 0),
        (JudgeRejected("401"), 0),
        (ContextOverflow("too long"), 0),
        (InternalError("bad request"), 0),
        (ZeroDivisionError(), 0),
        (JudgeNoAnswer("timeout"), 0.1),
        (JudgeRefused("content filter"), 0.1),
    ],
    ids=lambda value: type(value).__name__,
)
@virtually
async def test_a_call_without_an_answer_costs_its_prompt_at_most(
    error: Exception, usd: float
) -> None:
    spend = FakeSpend()
    await ask(costing(spend, retry_delays_s=()), error)
    assert spend.spent == [pytest.approx(usd)]


@virtually
async def test_every_try_has_a_reservation_of_its_own() -> None:
    spend = FakeSpend()
    no_answer = JudgeNoAnswer("timeout")
    await ask(costing(spend), UNWELL, no_answer, completion(input_tokens=1000, output_tokens=0))
    assert [asked["amount_usd"] for asked in spend.reserved] == [pytest.approx(0.7)] * 3
    assert spend.spent == [0, pytest.approx(0.1), pytest.approx(1.0)]


@virtually
async def test_a_cancelled_call_has_cost_its_prompt() -> None:
    spend = FakeSpend(takes_s=1)
    task = asyncio.create_task(costing(spend).ask(answering(takes_s=9), question()))
    await asyncio.sleep(2)
    await cancelled(task)
    await asyncio.sleep(2)
    assert spend.spent == [pytest.approx(0.1)]


@virtually
async def test_who_is_cancelled_while_booking_has_booked() -> None:
    spend = FakeSpend(takes_s=1)
    answer = completion(input_tokens=1000, output_tokens=0)
    task = asyncio.create_task(costing(spend).ask(answering(answer), question()))
    await asyncio.sleep(0.5)
    await cancelled(task)
    await asyncio.sleep(1)
    assert spend.spent == [pytest.approx(1.0)]


@virtually
async def test_a_call_that_would_pass_the_cap_is_not_made() -> None:
    before = measured("judge_budget_exhausted_total", provider="main")
    asked = costing(FakeSpend(room_usd=0.5))
    provider = answering()
    with pytest.raises(BudgetExhausted) as raised:
        await asked.ask(provider, question())
    assert str(raised.value) == ("judge main may cost 7.5 USD a day (UTC); 0.7000 more is too much")
    assert provider.calls == []
    assert measured("judge_budget_exhausted_total", provider="main") == before + 1
    assert (asked.concurrency.in_flight, state_of(asked)) == (0, State.CLOSED)


@virtually
async def test_what_fits_the_cap_exactly_is_called() -> None:
    assert len((await ask(costing(FakeSpend(room_usd=0.7)))).calls) == 1


@virtually
async def test_under_a_cap_a_model_without_a_price_is_not_called() -> None:
    provider = answering(model="unheard-of")
    with pytest.raises(InternalError, match="judge main has a spend cap and a model without"):
        await costing(spend := FakeSpend()).ask(provider, question())
    assert (provider.calls, spend.reserved) == ([], [])


@virtually
async def test_without_a_cap_a_model_without_a_price_is_counted() -> None:
    before = measured("judge_unpriced_total")
    usd = measured("judge_cost_usd_total")
    await line().ask(answering(model="unheard-of"), question())
    assert measured("judge_unpriced_total") == before + 1
    assert measured("judge_cost_usd_total") == usd


@virtually
async def test_a_bill_that_cannot_be_booked_is_logged(logged: list[Any]) -> None:
    spend = FakeSpend(trouble=NotReachable("postgres"))
    provider = answering(completion(input_tokens=1000, output_tokens=0))
    assert (await costing(spend).ask(provider, question())).input_tokens == 1000
    assert logged == [
        {
            "event": "spend_not_settled",
            "log_level": "warning",
            "provider": "main",
            "usd": pytest.approx(1.0),
            "error": "postgres",
        }
    ]


@virtually
async def test_who_lost_the_lease_calls_nobody() -> None:
    class Lost(FakeSpend):
        async def reserve(self, **_: Any) -> None:
            raise LeaseLost("gone")

    asked = costing(Lost())
    provider = answering()
    with pytest.raises(LeaseLost):
        await asked.ask(provider, question())
    assert (provider.calls, asked.concurrency.in_flight) == ([], 0)


# --- The estimate ------------------------------------------------------------------------------


@virtually
async def test_each_model_s_estimate_learns_from_its_answers() -> None:
    spend = FakeSpend()
    asked = costing(spend)
    answer = completion(input_tokens=200)  # twice as many as estimated
    for _ in range(2):
        await asked.ask(answering(answer), question(max_tokens=0))
    assert asked.estimate("judge-1").correction == pytest.approx(1.36)
    assert asked.estimate("judge-2").correction == 1
    # 100 tokens by the first estimate, 120 by the second.
    amounts = [reserved["amount_usd"] for reserved in spend.reserved]
    assert amounts == [pytest.approx(0.1), pytest.approx(0.12)]
