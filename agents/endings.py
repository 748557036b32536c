"""How a completion ends its turn: what people are told, and with which outcome (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from agents.events import Noticed, Outcome
from agents.parts import Completion, Finish


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: Outcome
    notice: Noticed | None = None
    code: str = ""
    message: str = ""
    refusal: bool = False


def ending(completion: Completion) -> Ending:
    """The end that a completion without tool calls makes of a turn."""
    empty = not completion.text.strip()
    match completion.finish:
        case Finish.LENGTH:
            text = "The model reached its output limit before it wrote an answer."
            return Ending(Outcome.TRUNCATED, Noticed("empty_response", text) if empty else None, "length")
        case Finish.CUT:
            return _cut(empty)
        case Finish.CONTENT_FILTER:
            return withheld(completion)
    if completion.refusal:
        return Ending(Outcome.COMPLETED, Noticed("refusal", "The model declined to answer."), refusal=True)
    if empty:
        return Ending(Outcome.COMPLETED, Noticed("empty_response", "The model gave an empty answer."))
    return Ending(Outcome.COMPLETED)


def withheld(completion: Completion) -> Ending:
    """The provider's filter stopped the answer: it is not asked again."""
    if completion.text.strip():
        text = "The provider's content filter withheld the rest of the answer."
        return Ending(Outcome.COMPLETED, Noticed("content_filter", text))
    text = "The provider's content filter withheld the answer."
    return Ending(Outcome.FAILED, Noticed("content_filter", text), "content_filter", text)


def cut_off_calls() -> Ending:
    """The model's calls were cut off again and again."""
    text = "The model's tool call was cut off every time before it was complete. It was not run."
    return Ending(Outcome.TRUNCATED, Noticed("call_cut_off", text), "call_cut_off")


def is_cut(completion: Completion) -> bool:
    """Whether a call of `completion` was cut off; the last one is suspect wherever the whole completion was."""
    return completion.finish in (Finish.LENGTH, Finish.CUT) or not all(call.complete for call in completion.requests)


def _cut(empty: bool) -> Ending:
    if empty:
        text = "The model's endpoint ended the stream before it gave an answer."
        return Ending(Outcome.FAILED, code="endpoint_unavailable", message=text)
    text = "The connection to the model ended before the answer was complete."
    return Ending(Outcome.TRUNCATED, Noticed("answer_cut", text), "cut")
