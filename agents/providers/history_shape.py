"""Messages as an endpoint takes them: whatever the history is, each call answered once, nothing empty, in order. Pure.

One bad item never poisons a conversation: everything is put right here, each time, and nothing stored is changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from agents.arguments import parse_arguments
from agents.parts import ImageContent, ModelMessage, TextContent, ToolRequest
from agents.providers.image_parts import image_parts, text_part
from agents.providers.settings import ModelSettings
from chatui.text import clean, clean_json

Wire = dict[str, Any]

MISSING_RESULT = "No result: the call was interrupted and may have taken effect."
NO_OUTPUT = "(no output)"
TOOL_IMAGES = "Images from the tool results above:"
# Placeholders where a rule of the endpoint wants a message and the history has none.
BEGINNING = "(the beginning of the conversation)"
GO_ON = "Please go on."
BRIDGE = "(no answer)"

_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")  # OpenAI refuses longer ones
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
_RETURNED_EXTRA = frozenset({"extra_content", "thought_signature", "thoughtSignature", "provider_specific_fields"})
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def request_messages(settings: ModelSettings, messages: Sequence[ModelMessage]) -> list[Wire]:
    """The `messages` of a request. Images are sniffed, ids made unique, orphan results left out."""
    system = "\n\n".join(text for message in messages if message.role == "system" if (text := clean(message.text)))
    wire = _Writer(settings).write([message for message in messages if message.role != "system"])
    strict = settings.alternate_roles or settings.dialect == "mistral"
    if strict:
        wire = _alternating(wire)
    wire = _bounded(wire, prefill=settings.prefill)
    if settings.dialect == "mistral" and wire[-1]["role"] == "assistant":
        wire[-1]["prefix"] = True
    if not system.strip():
        return wire
    if settings.system_role == "user":
        return [_joined({"role": "user", "content": system}, wire[0]), *wire[1:]]
    return [{"role": settings.system_role, "content": system}, *wire]


def _bounded(wire: list[Wire], *, prefill: bool) -> list[Wire]:
    """Begins with a user message, and ends with an answer only where the model goes on with it."""
    if not wire or wire[0]["role"] != "user":
        wire = [{"role": "user", "content": BEGINNING}, *wire]
    if wire[-1]["role"] == "assistant" and not prefill:
        wire = [*wire, {"role": "user", "content": GO_ON}]
    return wire


def _alternating(wire: list[Wire]) -> list[Wire]:
    """Neighbours of one role joined, and an assistant message between tool results and a user message."""
    result: list[Wire] = []
    for message in wire:
        before = result[-1]["role"] if result else ""
        if before == message["role"] != "tool":
            result[-1] = _joined(result[-1], message)
            continue
        if before == "tool" and message["role"] == "user":
            result.append({"role": "assistant", "content": BRIDGE})
        result.append(message)
    return result


def _joined(first: Wire, second: Wire) -> Wire:
    one, two = first["content"], second["content"]
    content: Any
    if isinstance(one, str) and isinstance(two, str):
        content = "\n\n".join(filter(None, (one, two)))
    else:
        content = [part for side in (one, two) for part in ([text_part(side)] if isinstance(side, str) else side)]
    return {**first, **second, "content": content}


class _Writer:
    """Writes one history; holds the ids that were given out, because they are unique over all of it."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._mistral = settings.dialect == "mistral"
        self._taken: set[str] = set()

    def write(self, messages: Sequence[ModelMessage]) -> list[Wire]:
        wire: list[Wire] = []
        for place, message in enumerate(messages):
            if message.role == "user":
                content = self._content(message)
                if content:
                    wire.append({"role": "user", "content": content})
            elif message.role == "assistant":
                wire += self._assistant(message, _results(messages, place))
        return wire

    def _assistant(self, message: ModelMessage, results: Iterator[ModelMessage]) -> Iterator[Wire]:
        text = clean(message.text)
        written: Wire = {"role": "assistant", "content": text if text.strip() else ""}
        if not written["content"] and not message.tool_calls:
            return
        if self._settings.return_reasoning and message.reasoning.strip():
            written["reasoning_content"] = clean(message.reasoning)
        ids = [self._id(call.id) for call in message.tool_calls]
        if ids:
            written["tool_calls"] = [self._call(*pair) for pair in zip(message.tool_calls, ids, strict=True)]
        yield written
        yield from self._answers(message.tool_calls, ids, list(results))

    def _answers(self, calls: Sequence[ToolRequest], ids: Sequence[str], results: list[ModelMessage]) -> Iterator[Wire]:
        """One tool message per call, in call order; then the images that they brought, which only a user may send."""
        images: list[ImageContent] = []
        for call, call_id in zip(calls, ids, strict=True):
            result = next((result for result in results if result.tool_call_id == call.id), None)
            text = MISSING_RESULT
            if result is not None:
                results.remove(result)
                text = self._result(result, images)
            yield {"role": "tool", "tool_call_id": call_id, "content": text}
        if images:
            parts = [part for image in images for part in image_parts(image, sees=True)]
            yield {"role": "user", "content": [text_part(TOOL_IMAGES), *parts]}

    def _result(self, result: ModelMessage, images: list[ImageContent]) -> str:
        texts: list[str] = []
        for part in result.content:
            if isinstance(part, TextContent):
                texts.append(clean(part.text))
                continue
            described = image_parts(part, sees=self._settings.images)
            if any(piece["type"] == "image_url" for piece in described):
                images.append(part)
                texts.append(f"[{clean(part.name) or 'image'}: see below]")
            else:
                texts += [piece["text"] for piece in described]
        text = "\n".join(filter(None, texts))
        return text if text.strip() else NO_OUTPUT

    def _content(self, message: ModelMessage) -> str | list[Wire]:
        """Text alone as a string, which every endpoint takes; parts only where there is an image to see."""
        parts: list[Wire] = []
        for part in message.content:
            if isinstance(part, TextContent):
                if text := clean(part.text):
                    parts.append(text_part(text))
            else:
                parts += image_parts(part, sees=self._settings.images)
        if any(part["type"] != "text" for part in parts):
            return [part for part in parts if part["type"] != "text" or part["text"].strip()]
        text = "".join(part["text"] for part in parts) if _only_text(message) else _lines(parts)
        return text if text.strip() else ""

    def _call(self, call: ToolRequest, call_id: str) -> Wire:
        arguments = parse_arguments(call.arguments).value or {}
        written: Wire = {
            "id": call_id,
            "type": "function",
            "function": {"name": _name(call.name), "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        if not self._mistral:  # it refuses every key that it does not know
            extra = {key: value for key, value in call.extra.items() if key in _RETURNED_EXTRA and value is not None}
            written |= clean_json(extra)
        return written

    def _id(self, call_id: str) -> str:
        """The id itself where the endpoint takes it and it is not used yet, else one made of it, always the same."""
        form = _MISTRAL_ID if self._mistral else _ID
        candidate, repeat = call_id, 0
        while candidate in self._taken or not form.match(candidate):
            candidate = _made_id(f"{call_id}#{repeat}", self._mistral)
            repeat += 1
        self._taken.add(candidate)
        return candidate


def _results(messages: Sequence[ModelMessage], place: int) -> Iterator[ModelMessage]:
    """The tool messages that may answer the calls at `place`: those before the next message with calls."""
    for message in messages[place + 1 :]:
        if message.role == "assistant" and message.tool_calls:
            return
        if message.role == "tool":
            yield message


def _only_text(message: ModelMessage) -> bool:
    return all(isinstance(part, TextContent) for part in message.content)


def _lines(parts: list[Wire]) -> str:
    return "\n".join(part["text"] for part in parts)


def _name(name: str) -> str:
    """A name that an endpoint takes: a model may have called a tool that cannot exist."""
    return _NAME.sub("_", name)[:64] or "unknown"


def _made_id(seed: str, mistral: bool) -> str:
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8", "replace")).digest())
    letters = []
    for _ in range(9 if mistral else 24):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters) if mistral else f"call_{''.join(letters)}"
