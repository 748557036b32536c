"""`Meter`: what a turn has used, round by round, and what the round that is on its way has cost until now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from agents.events import RoundBegun
from agents.parts import TokenUsage
from agents.providers.usage import estimate_cut, estimate_tokens

Used = dict[str, Any]  # as it is stored with the turn: input_tokens, output_tokens, estimated, cost


class Priced(Protocol):
    """Of a model, per million tokens; None is unknown."""

    @property
    def input_price(self) -> Decimal | None: ...

    @property
    def output_price(self) -> Decimal | None: ...


class Asked(Protocol):
    """Whether the endpoint has the prompt."""

    @property
    def asked(self) -> bool: ...


@dataclass(slots=True)
class _Round:
    """One that has begun, and of which the model has not said yet what it cost."""

    begun: RoundBegun
    given: int | None = None  # tokens, once somebody asked

    def estimate(self, written: Sequence[str]) -> TokenUsage:
        if self.given is None:
            self.given = estimate_cut(self.begun.messages, self.begun.tools_tokens, ()).input_tokens
        return TokenUsage(self.given, estimate_tokens(written), estimated=True)


class Meter:
    """The sum of a turn's rounds. A round counts once: as the model says, or as far as it came if it was cut.

    One that the endpoint never had, or refused, costs nothing.
    """

    def __init__(self, used: Mapping[str, Any], prices: Priced, model: Asked) -> None:
        self._used: Used = dict(used)
        self._prices, self._model = prices, model
        self._round: _Round | None = None

    def begin(self, begun: RoundBegun) -> None:
        self._round = _Round(begun)

    def add(self, usage: TokenUsage) -> Used:
        """The round is over; the sum with it."""
        self._round = None
        self._used = self._with(usage)
        return self._used

    def cut(self, written: Sequence[str]) -> Used | None:
        """The round that is on its way ends here, with `written` of it; the sum with it, if it cost something."""
        under_way, self._round = self._round, None
        return self.add(under_way.estimate(written)) if under_way is not None and self._model.asked else None

    def so_far(self, written: Sequence[str]) -> Used:
        """The sum with what the round that is on its way has cost until now: what holds should we die here."""
        if self._round is None or not self._model.asked:
            return dict(self._used)
        return self._with(self._round.estimate(written))

    def _with(self, usage: TokenUsage) -> Used:
        before = self._used
        cost = before.get("cost")
        given, made = self._prices.input_price, self._prices.output_price
        if given is not None and made is not None:
            spent = usage.input_tokens * float(given) + usage.output_tokens * float(made)
            cost = round((cost or 0.0) + spent / 1_000_000, 8)
        return {
            **before,
            "input_tokens": before.get("input_tokens", 0) + usage.input_tokens,
            "output_tokens": before.get("output_tokens", 0) + usage.output_tokens,
            "estimated": bool(before.get("estimated")) or usage.estimated,
            "cost": cost,
        }
