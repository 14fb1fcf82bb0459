"""The numbers that a model takes, with their bounds."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Number:
    """A field; a bound is None where it has none, or one that is not allowed itself."""

    name: str
    whole: bool
    least: float | None
    most: float | None

    @property
    def beyond(self) -> list[tuple[float, str]]:
        """Values just beyond each bound and far beyond, and what is allowed instead."""
        assert self.least is not None
        assert self.most is not None
        close = self.least - 1 if self.whole else self.least - 1e-9
        wrong = [(value, f"greater than or equal to {self.least:g}") for value in (close, -1e300)]
        close = self.most + 1 if self.whole else self.most * 1.001
        wrong += [(value, f"less than or equal to {self.most}") for value in (close, 10**30)]
        return [(int(value) if self.whole else value, allowed) for value, allowed in wrong]


def numbers(model: type[BaseModel]) -> list[Number]:
    """All numbers of a model, those that may be null included."""
    found: list[Number] = []
    for name, shape in model.model_json_schema()["properties"].items():
        choices: list[dict[str, Any]] = shape.get("anyOf", [shape])
        found += [
            Number(name, choice["type"] == "integer", choice.get("minimum"), choice.get("maximum"))
            for choice in choices
            if choice.get("type") in {"integer", "number"}
        ]
    return found
