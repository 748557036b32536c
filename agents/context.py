"""What a model is told: a round as messages, and any conversation fitted into the model's context (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agents.parts import (
    Content,
    ImageContent,
    JSONObject,
    ModelMessage,
    TextContent,
    ToolRequest,
    ToolResult,
    ToolSpec,
    ToolStatus,
)
from agents.providers.chat_model import Capabilities
from mcpservers.cuts import READ_RESULT, Cut, cut, read_cut, whole_name

OLD_OUTPUT_CHARACTERS = 8_000
IMAGE_TOKENS = 1_000
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
NO_TEXT = {ToolStatus.OK: "(no output)"}
_FAILURES = frozenset({ToolStatus.ERROR, ToolStatus.TIMEOUT, ToolStatus.UNAVAILABLE})
_OUTPUT_TOKENS = 4_096  # left free for the answer


# --- A round as messages ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and its result as the model is to be told; `arguments` is what was understood of the request's text."""

    request: ToolRequest
    result: ToolResult
    arguments: JSONObject | None = None


def round_messages(
    text: str, calls: Sequence[Answered], *, trailing_text: str = "", reasoning: str = "", images: bool = False
) -> list[ModelMessage]:
    """One completion as it goes back to the model: its text, what it wrote after its calls, the calls, their results.

    Every call is answered once, in the order given, under an id that is unique within the round; arguments are a JSON
    object. A result's images go with it for a model that sees. Empty if there is nothing to tell.
    """
    whole = "\n\n".join(part for part in (text, trailing_text) if part.strip())
    ids = _unique(call.request.id for call in calls)
    requests = [replace(sendable(call), id=id) for call, id in zip(calls, ids, strict=True)]
    if not whole and not requests:
        return []
    content = (TextContent(whole),) if whole else ()
    assistant = ModelMessage("assistant", content, tool_calls=requests, reasoning=reasoning)
    results = [
        ModelMessage("tool", _content(call.result, images), tool_call_id=id)
        for call, id in zip(calls, ids, strict=True)
    ]
    return [assistant, *results]


def sendable(call: Answered) -> ToolRequest:
    """The request with arguments that are a JSON object: as the model wrote them, else as they were understood."""
    try:
        value = json.loads(call.request.arguments)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return call.request
    return replace(call.request, arguments=json.dumps(call.arguments or {}, ensure_ascii=False))


def result_text(result: ToolResult) -> str:
    """A result in words that the model cannot take for success if it is none."""
    text = result.text if result.text.strip() else NO_TEXT.get(result.status, f"({result.status})")
    if result.status in _FAILURES and not text.lower().startswith("error"):
        return f"Error: {text}"
    return text


def _unique(ids: Iterable[str]) -> list[str]:
    found: list[str] = []
    for position, id in enumerate(ids):
        id = id or f"call_{position}"
        found.append(id if id not in found else f"{id}_{position}")
    return found


def _content(result: ToolResult, images: bool) -> tuple[Content, ...]:
    text = TextContent(result_text(result))
    if not images:
        return (text,)
    seen = (item for item in result.artifacts if item.media_type in IMAGE_TYPES)
    return (text, *(ImageContent(item.data, item.media_type, item.name) for item in seen))


# --- The budget ---------------------------------------------------------------------------------------------------


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` is: 4 characters each, wide (Chinese, Japanese, Korean) ones 1 each."""
    if text.isascii():
        return (len(text) + 3) // 4
    # A wide character is 3 bytes of UTF-8: two more than characters.
    wide = min(len(text), (len(text.encode("utf-8", "replace")) - len(text) + 1) // 2)
    return wide + (len(text) - wide + 3) // 4


def message_tokens(message: ModelMessage) -> int:
    total = 4 + estimate_tokens(message.reasoning)
    for part in message.content:
        total += estimate_tokens(part.text) if isinstance(part, TextContent) else IMAGE_TOKENS
    for request in message.tool_calls:
        total += 8 + estimate_tokens(request.name) + estimate_tokens(request.arguments)
    return total


def input_budget(capabilities: Capabilities, reserved: int = 0) -> int:
    """How many tokens of messages fit beside `reserved` (tools, system prompt) and an answer."""
    return capabilities.context - min(_OUTPUT_TOKENS, capabilities.context // 4) - reserved


def specs_tokens(specs: Iterable[ToolSpec]) -> int:
    return sum(8 + estimate_tokens(spec.name + spec.description + json.dumps(spec.parameters)) for spec in specs)


def can_read_on(specs: Iterable[ToolSpec]) -> bool:
    """Whether a model that is offered `specs` can page through what was cut for it."""
    return any(spec.name == READ_RESULT for spec in specs)


def reserved_tokens(system: str, specs: Iterable[ToolSpec]) -> int:
    """What a system prompt and the offered tools take of the context."""
    return estimate_tokens(system) + specs_tokens(specs)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Messages that fit; how many tool outputs were cut and how many turns dropped for it."""

    messages: list[ModelMessage]
    cut: int = 0
    dropped: int = 0


def fit(messages: Sequence[ModelMessage], budget: int, *, readable: bool = False) -> Fitted:
    """`messages` within `budget` tokens, as estimated: first the tool outputs of old turns are cut to 8,000 characters,
    oldest first, then the oldest turns dropped whole, last the outputs of the current turn cut.

    System messages and the current turn (from the last user message on) always stay, so the result may be too long.
    `readable`: the model is offered `read_result`, so what is cut says how to read on.
    """
    sizes = [message_tokens(message) for message in messages]
    excess = sum(sizes) - budget
    if excess <= 0:
        return Fitted(list(messages))
    head, turns = _turns(messages)
    old, current = turns[:-1], turns[-1] if turns else []
    cut = 0
    for turn in old:
        saved, changed = _cut_outputs(turn, excess, readable)
        excess, cut = excess - saved, cut + changed
    dropped = 0
    while old and excess > 0:
        excess -= sum(message_tokens(message) for message in old.pop(0))
        dropped += 1
    saved, changed = _cut_outputs(current, excess, readable)
    kept = [*head, *(message for turn in (*old, current) for message in turn)]
    return Fitted(kept, cut + changed, dropped)


def shortened_notice(fitted: Fitted) -> tuple[str, str, str]:
    """What a person is told of it: code, message, detail of a notice."""
    return (
        "context_shortened",
        "This conversation is longer than the model can take in. Older parts of it were left out.",
        f"tool outputs cut: {fitted.cut}, turns left out: {fitted.dropped}",
    )


def _turns(messages: Sequence[ModelMessage]) -> tuple[list[ModelMessage], list[list[ModelMessage]]]:
    head: list[ModelMessage] = []
    turns: list[list[ModelMessage]] = []
    for message in messages:
        if message.role == "system" and not turns:
            head.append(message)
        elif message.role == "user" or not turns:
            turns.append([message])
        else:
            turns[-1].append(message)
    return head, turns


def _cut_outputs(turn: list[ModelMessage], excess: int, readable: bool) -> tuple[int, int]:
    """Cut the tool outputs of `turn` in place, oldest first, until `excess` tokens are saved; (saved, how many)."""
    saved = cut = 0
    for position, message in enumerate(turn):
        if saved >= excess:
            break
        if message.role != "tool":
            continue
        shorter = replace(message, content=(TextContent(shortened(message.text, readable=readable)),))
        gain = message_tokens(message) - message_tokens(shorter)
        if gain > 0:
            turn[position], saved, cut = shorter, saved + gain, cut + 1
    return saved, cut


def shortened(output: str, limit: int = OLD_OUTPUT_CHARACTERS, *, readable: bool = False) -> str:
    """A tool's output cut to `limit` characters, saying so, and if `readable` how to read on: in the output as it was
    told, or in the whole of which that was the beginning.
    """
    if len(output) <= limit:
        return output
    whole = (read_cut(output) or Cut(whole_name(output))) if readable else None
    return cut(output, limit, f"cut here: the output had {len(output)} characters.", whole)
