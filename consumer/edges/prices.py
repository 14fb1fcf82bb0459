"""What tokens cost, by the price list that `genai-prices` ships (offline)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from math import isclose
from time import monotonic

from genai_prices import Usage, calc_price

MILLION = 1_000_000
# Some prices depend on the time of day: a rate that was worked out once is not kept for ever.
RATE_KEPT_S = 600.0
# Sizes from a short call to more than any model's context: a price in tiers shows between them.
_PROBES = (1_000, 150_000, 300_000, MILLION)


@dataclass(frozen=True, slots=True)
class _Rate:
    """USD per (input, output) token where they do not depend on the amount, else None. Not `known`:
    the list tells no price, whatever the amount.
    """

    per_token: tuple[float, float] | None
    known: bool
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """`overrides`: (provider, model) to USD per million (input, output) tokens.

    Asking the list takes about a millisecond, and a session has dozens of calls: rates are kept.
    """

    overrides: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _rates: dict[tuple[str | None, str], _Rate] = field(default_factory=dict, compare=False)

    def cost_usd(
        self, *, provider: str | None, model: str | None, input_tokens: int, output_tokens: int
    ) -> float | None:
        """See ports.Prices."""
        if not model:
            return None
        if override := self.overrides.get((provider or "", model)):
            return (input_tokens * override[0] + output_tokens * override[1]) / MILLION
        rate = self._rate(provider, model)
        if not rate.known:
            return None
        if rate.per_token is None:
            return _listed(provider, model, input_tokens, output_tokens)
        return input_tokens * rate.per_token[0] + output_tokens * rate.per_token[1]

    def _rate(self, provider: str | None, model: str) -> _Rate:
        kept = self._rates.get((provider, model))
        if kept is None or kept.until < monotonic():
            prices = _probed(provider, model)
            kept = _Rate(
                per_token=_per_token(prices),
                known=any(price is not None for probe in prices for price in probe),
                until=monotonic() + RATE_KEPT_S,
            )
            self._rates[provider, model] = kept
        return kept


# The prices of so many tokens as input, as output, and as both.
_Probe = tuple[float | None, float | None, float | None]


def _probed(provider: str | None, model: str) -> list[_Probe]:
    return [
        (
            _listed(provider, model, n, 0),
            _listed(provider, model, 0, n),
            _listed(provider, model, n, n),
        )
        for n in _PROBES
    ]


def _per_token(known: list[_Probe]) -> tuple[float, float] | None:
    """The model's rates, if the list's price is the same for every amount."""
    read, written, _ = known[0]
    if read is None or written is None:
        return None
    rates = (read / _PROBES[0], written / _PROBES[0])
    for n, prices in zip(_PROBES, known, strict=True):
        linear = (n * rates[0], n * rates[1], n * (rates[0] + rates[1]))
        pairs = zip(prices, linear, strict=True)
        if not all(price is not None and isclose(price, line) for price, line in pairs):
            return None
    return rates


def _listed(
    provider: str | None, model: str, input_tokens: int, output_tokens: int
) -> float | None:
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    # Providers have names of their own in our configuration; a model's is its maker's.
    for provider_id in (provider, None):
        with suppress(LookupError):
            price: Decimal = calc_price(usage, model_ref=model, provider_id=provider_id).total_price
            # The list has models without a price for tokens: nothing is known, not "free".
            return float(price) if price or not (input_tokens or output_tokens) else None
    return None
