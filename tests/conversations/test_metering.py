"""What the rounds of a turn have cost: each once, as the model says or as far as it came."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from agents.events import RoundBegun
from agents.parts import TokenUsage, text_message
from conversations.drafts import Draft
from conversations.metering import Meter

BEGUN = RoundBegun([text_message("user", "x" * 400)], 50)


def meter(used: dict[str, Any] | None = None, *, asked: bool = True, price: str | None = None) -> Meter:
    each = None if price is None else Decimal(price)
    return Meter(used or {}, SimpleNamespace(input_price=each, output_price=each), SimpleNamespace(asked=asked))


def counted(used: dict[str, Any] | None) -> tuple[int, int, bool]:
    assert used is not None
    return used["input_tokens"], used["output_tokens"], used["estimated"]


def test_a_round_that_is_on_its_way_is_estimated_and_then_counted_as_the_model_says() -> None:
    one = meter({"input_tokens": 7, "output_tokens": 3, "estimated": False, "cost": None})
    one.begin(BEGUN)
    given = counted(one.so_far([]))[0]
    assert given > 7 + 100 + 50 - 1
    assert counted(one.so_far(["word"])) == (given, 4, True)
    assert counted(one.add(TokenUsage(20, 10))) == (27, 13, False)
    assert one.cut(["word"]) is None
    assert counted(one.so_far(["word"])) == (27, 13, False)


def test_a_round_that_is_cut_counts_once() -> None:
    one = meter(price="1000000")
    one.begin(BEGUN)
    used = one.cut(["word"])
    assert counted(used)[1:] == (1, True)
    assert used is not None
    assert used["cost"] == used["input_tokens"] + 1
    assert one.cut(["word"]) is None
    assert one.so_far(["word"]) == used


def test_what_the_endpoint_does_not_have_costs_nothing() -> None:
    one = meter(asked=False)
    one.begin(BEGUN)
    assert one.so_far([]) == {}
    assert one.cut([]) is None


def test_what_another_turn_wrote_before_is_not_written_in_this_one_s_round() -> None:
    draft = Draft([{"type": "text", "text": "before", "round": 1}])
    draft.add_text("after", 1)
    assert draft.written_in(1) == ["after"]
