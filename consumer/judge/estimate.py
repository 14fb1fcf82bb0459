"""How many tokens a text has: bytes / 2, corrected by what the model's usage reports."""

from __future__ import annotations

from consumer.scoring.tool_report import BYTES_PER_TOKEN
from consumer.scoring.transcript import utf8_size

# A new report counts a fifth: one odd prompt does not move the estimate, a handful do.
WEIGHT = 0.2
# No tokeniser is outside: 8 bytes a token, or one byte a token.
LEAST, MOST = 0.25, 2.0


class TokenEstimate:
    """One model's estimate; `correction` is real tokens over bytes / 2, 1 to begin with."""

    def __init__(self) -> None:
        self.correction = 1.0

    def tokens(self, text: str) -> int:
        """Tokens of the text, about."""
        return round(utf8_size(text) / BYTES_PER_TOKEN * self.correction)

    def learn(self, text: str, tokens: int) -> None:
        """What the text really had; 0 where the provider did not say."""
        size = utf8_size(text)
        if tokens and size:
            seen = min(MOST, max(LEAST, tokens * BYTES_PER_TOKEN / size))
            self.correction += WEIGHT * (seen - self.correction)
