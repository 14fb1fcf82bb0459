"""What tokens cost: a price that is not known is never 0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.edges.prices import PriceList

LIST = PriceList()
tokens = st.integers(0, 10**7)


def cost(
    provider: str | None, model: str | None, used: tuple[int, int] = (1_000_000, 100_000)
) -> float | None:
    return LIST.cost_usd(
        provider=provider, model=model, input_tokens=used[0], output_tokens=used[1]
    )


def test_a_known_model_has_a_price() -> None:
    # 2.50 USD a million in, 10 USD a million out.
    assert cost("openai", "gpt-4o") == pytest.approx(3.5)
    assert cost("openai", "gpt-4o", (1_000_000, 0)) == pytest.approx(2.5)
    assert cost("openai", "gpt-4o", (0, 1_000_000)) == pytest.approx(10)
    assert cost("openai", "gpt-4o", (0, 0)) == 0


@pytest.mark.parametrize("provider", [None, "", "my-gateway", "anthropic"])
def test_a_model_is_found_without_the_list_s_name_of_its_provider(provider: str | None) -> None:
    assert cost(provider, "gpt-4o") == pytest.approx(3.5)


@pytest.mark.parametrize("provider", [None, "openai", "my-gateway"])
@pytest.mark.parametrize("model", [None, "", "no-such-model-of-anyone"])
def test_what_is_not_known_has_no_price(provider: str | None, model: str | None) -> None:
    assert cost(provider, model) is None
    assert cost(provider, model, (0, 0)) is None


def test_a_listed_model_without_a_price_for_tokens_is_not_free() -> None:
    # The list knows it, and knows no price for it.
    assert cost("cerebras", "qwen-3-coder-480b") is None
    assert cost("openai", "whisper-1") is None
    assert cost("openai", "whisper-1", (0, 5)) is None
    assert cost("openai", "whisper-1", (5, 0)) is None


def test_an_override_comes_first() -> None:
    prices = PriceList(
        overrides={("openai", "gpt-4o"): (1.0, 2.0), ("", "mine"): (3, 0), ("lab", "free"): (0, 0)}
    )

    def overridden(provider: str | None, model: str) -> float | None:
        return prices.cost_usd(
            provider=provider, model=model, input_tokens=2_000_000, output_tokens=500_000
        )

    assert overridden("openai", "gpt-4o") == 3.0
    assert overridden(None, "gpt-4o") == pytest.approx(10)
    assert overridden(None, "mine") == 6.0
    assert overridden("other", "mine") is None
    assert overridden("lab", "free") == 0.0


@given(tokens, tokens, tokens)
def test_more_tokens_never_cost_less(input_tokens: int, output_tokens: int, more: int) -> None:
    less = cost("openai", "gpt-4o", (input_tokens, output_tokens))
    greater = cost("openai", "gpt-4o", (input_tokens, output_tokens + more))
    assert less is not None
    assert greater is not None
    assert 0 <= less <= greater
