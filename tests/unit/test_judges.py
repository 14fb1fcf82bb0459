"""The configured judges put together: one line a provider, one member a seat, and no open bills."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from consumer import judges as module
from consumer.config import Config, JudgeConfig, ProviderConfig
from consumer.edges.judge.anthropic import AnthropicProvider
from consumer.edges.judge.gemini import GeminiProvider
from consumer.edges.judge.openai import OpenAIProvider
from consumer.errors import ConfigError
from consumer.judge.line import TOLERATED_CONGESTION, Account
from consumer.judges import DeskSpend, open_judge, prices, refuse_unpriced, warn_unreachable
from consumer.scoring.profile import Seat
from tests.unit.builders import TEMPLATE
from tests.unit.judges import FakeSpend

PRICE = {"input_per_million": 1.0, "output_per_million": 2.0}
BIG = Seat(model="big")


def provider(
    name: str = "main", models: dict[Seat, str] | None = None, **changes: Any
) -> JudgeConfig:
    fields = {"type": "openai", "base_url": "http://llm.example/v1", "model": "small"}
    return JudgeConfig(
        name=name,
        provider=ProviderConfig.model_validate({**fields, **changes}),
        models=models or {Seat(): "small"},
        api_key="key",
    )


def configured(*judges: JudgeConfig) -> Config:
    return Config(
        enabled=True,
        judges=judges,
        labels={},
        prompts={"judge_prompt": TEMPLATE},
        profiles=(),
    )


async def test_a_provider_s_models_share_its_line() -> None:
    config = configured(
        provider(models={Seat(): "small", BIG: "big", Seat(provider="main"): "small"}),
        provider(
            "other", {Seat(provider="other"): "x"}, context_window=4096, max_output_tokens=512
        ),
    )
    async with open_judge(config, prices(config)) as judge:
        assert [line.name for line in judge.lines] == ["main", "other"]
        small, big = judge.members[Seat()], judge.members[BIG]
        assert (small.provider.model, big.provider.model) == ("small", "big")
        assert small.line is big.line
        # What a server refuses is remembered by each model's own provider.
        assert judge.members[Seat(provider="main")].provider is small.provider
        other = judge.members[Seat(provider="other")]
        assert (other.provider.name, other.provider.max_output_tokens) == ("other", 512)
        assert (other.context_window, small.context_window) == (4096, 128_000)
        assert judge.prompts == config.prompts


@pytest.mark.parametrize(
    ("kind", "adapter", "header"),
    [
        ("openai", OpenAIProvider, ("authorization", "Bearer key")),
        ("gemini", GeminiProvider, ("x-goog-api-key", "key")),
        ("anthropic", AnthropicProvider, ("x-api-key", "key")),
    ],
)
async def test_each_kind_has_its_adapter_and_its_key(
    kind: str, adapter: type[Any], header: tuple[str, str]
) -> None:
    config = configured(provider(type=kind, dialect="json_object", timeout_s=7))
    async with open_judge(config, prices(config)) as judge:
        made = judge.members[Seat()].provider
        assert isinstance(made, adapter)
        assert (made.client.headers[header[0]], made.dialect) == (header[1], "json_object")
        assert made.client.timeout.read == 7
        client = made.client
    assert client.is_closed


async def test_no_provider_is_asked_more_often_than_the_process_may() -> None:
    config = configured(provider(max_concurrency=7), provider("free", {BIG: "big"}))
    async with open_judge(config, prices(config), most_calls=16) as judge:
        assert [line.concurrency.limit for line in judge.lines] == [7, 16]


async def test_a_provider_s_limits_are_its_line_s() -> None:
    limits: dict[str, Any] = {
        "max_concurrency": 7,
        "requests_per_minute": 60,
        "tokens_per_minute": 6000,
    }
    config = configured(provider(**limits, breaker_open_s=5), provider("free", {BIG: "big"}))
    async with open_judge(config, prices(config)) as judge:
        limited, free = judge.lines
        assert (limited.concurrency.limit, free.concurrency.limit) == (7, 64)
        assert limited.requests is not None
        assert limited.tokens is not None
        assert limited.requests.available == pytest.approx(10)
        assert limited.tokens.available == pytest.approx(1000)
        assert free.requests is free.tokens is None
        for _ in range(5):
            permit = limited.breaker.enter()
            assert permit is not None
            permit.failed()
        assert 4 < limited.breaker.retry_after_s <= 5


async def test_a_few_calls_turned_away_are_borne() -> None:
    assert 0 < TOLERATED_CONGESTION < 1
    config = configured(provider(max_concurrency=10))
    async with open_judge(config, prices(config)) as judge:
        concurrency = judge.lines[0].concurrency
        limits = []
        for _ in range(3):
            async with concurrency.slot() as slot:
                slot.congested()
            limits.append(concurrency.limit)
    assert limits == [10, 10, 5]


async def test_a_cap_is_held_where_there_is_an_account() -> None:
    config = configured(
        provider(daily_cap_usd=2.5, price=PRICE),
        provider("free", {BIG: "big"}),
    )
    spend = FakeSpend()
    async with open_judge(config, prices(config), spend=spend) as judge:
        capped, free = judge.lines
        assert capped.account == Account(spend=spend, cap_usd=2.5)
        assert free.account is None
    async with open_judge(config, prices(config)) as judge:
        assert [line.account for line in judge.lines] == [None, None]


async def test_a_desk_s_account_is_for_all_providers() -> None:
    config = configured(provider(daily_cap_usd=2.5, price=PRICE), provider("free", {BIG: "big"}))
    account = Account(spend=DeskSpend(), cap_usd=0.1)
    async with open_judge(config, prices(config), spend=FakeSpend(), account=account) as judge:
        assert [line.account for line in judge.lines] == [account, account]


def test_a_provider_s_own_price_is_for_all_its_models() -> None:
    known = prices(
        configured(provider(models={Seat(): "gpt-4o", BIG: "mine"}, price=PRICE), provider("other"))
    )

    def cost(name: str, model: str) -> float | None:
        return known.cost_usd(
            provider=name, model=model, input_tokens=1_000_000, output_tokens=1_000_000
        )

    assert (cost("main", "gpt-4o"), cost("main", "mine")) == (3.0, 3.0)
    assert cost("other", "mine") is None
    assert cost("other", "gpt-4o") == pytest.approx(12.5)


def test_a_cap_refuses_models_whose_price_is_unknown() -> None:
    config = configured(
        provider(
            models={Seat(): "mine", BIG: "gpt-4o", Seat(provider="main"): "mine"}, daily_cap_usd=1
        ),
        provider("other", {Seat(provider="other"): "theirs"}, daily_cap_usd=0),
        provider("uncapped", {Seat(provider="uncapped"): "theirs"}),
        provider("priced", {Seat(provider="priced"): "theirs"}, daily_cap_usd=1, price=PRICE),
    )
    with pytest.raises(ConfigError) as refusal:
        refuse_unpriced(config, prices(config))
    told = (
        "llm_providers.yaml: {}: daily_cap_usd: the price of {!r} is unknown; "
        "give price: {{input_per_million, output_per_million}} (USD)"
    )
    assert refusal.value.problems == [told.format("main", "mine"), told.format("other", "theirs")]


def test_a_price_of_nothing_is_a_price() -> None:
    unpriced = configured(provider(daily_cap_usd=1))
    with pytest.raises(ConfigError):
        refuse_unpriced(unpriced, prices(unpriced))
    free = {"input_per_million": 0, "output_per_million": 0}
    priced = configured(provider(daily_cap_usd=1, price=free))
    refuse_unpriced(priced, prices(priced))


# --- Who listens -------------------------------------------------------------------------------


async def nobody_there(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is logged of judges out of reach."""
    capture = structlog.testing.LogCapture()
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, processors=[capture]))
    await warn_unreachable(config)
    return capture.entries


async def test_a_judge_that_nobody_listens_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = configured(provider("here", base_url=f"http://127.0.0.1:{port}/v1"))
    async with server:
        assert await nobody_there(config, monkeypatch) == []
    (told,) = await nobody_there(config, monkeypatch)
    assert told == {
        "event": "judge_unreachable",
        "log_level": "warning",
        "provider": "here",
        "host": "127.0.0.1",
        "error": "ConnectionRefusedError",
    }


@pytest.mark.parametrize(
    ("url", "port"), [("https://llm.example/v1", 443), ("http://llm.example", 80)]
)
async def test_an_address_without_a_port_has_its_scheme_s(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, int]] = []

    async def connect(host: str, port: int) -> Any:
        tried.append((host, port))
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio, "open_connection", connect)
    monkeypatch.setattr(module, "REACH_LIMIT_S", 0.01)
    (told,) = await nobody_there(configured(provider(base_url=url)), monkeypatch)
    assert tried == [("llm.example", port)]
    assert told["error"] == "TimeoutError"


# --- The account of a command ------------------------------------------------------------------


async def reserve(spend: DeskSpend, usd: float) -> UUID | None:
    return await spend.reserve(
        provider="main", cap_usd=1.0, amount_usd=usd, request_id=uuid4(), lease_token=uuid4()
    )


async def test_a_command_s_account_counts_what_is_reserved_and_what_is_spent() -> None:
    spend = DeskSpend()
    first = await reserve(spend, 0.75)
    assert first is not None
    assert await reserve(spend, 0.5) is None
    await spend.settle(first, 0.25)
    second = await reserve(spend, 0.75)
    assert second is not None
    assert await reserve(spend, 0.01) is None
    await spend.settle(second, 0.75)
    await spend.settle(second, 0.75)
    assert spend.spent_usd == 1.0
