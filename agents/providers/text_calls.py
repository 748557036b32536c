"""Tool calls that a model writes as text: `<tool_call>{…}</tool_call>`, and nothing else in the whole answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import orjson

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MAX_HELD = 2**20  # characters; a longer block is shown as the text that it is


class TextCalls:
    """A gate for text: holds it only while it can still be nothing but such blocks, then lets everything through."""

    def __init__(self, on_text: Callable[[str], None], offered: Collection[str]) -> None:
        self._on_text, self._offered = on_text, frozenset(offered)
        self.restart()

    def restart(self) -> None:
        """What came so far was not the answer: judge what follows by itself."""
        self._held: list[str] = []
        self._size = 0
        self._between: str | None = ""  # text since the last block; None within one
        self._tail = ""
        self.open = not self._offered  # everything passes

    def feed(self, text: str) -> None:
        if self.open:
            self._on_text(text)
            return
        self._held.append(text)
        self._size += len(text)
        if not self._plausible(text) or self._size > _MAX_HELD:
            self.release()

    def release(self) -> None:
        """It is text: show what was held, and all that follows."""
        held, self._held, self.open = "".join(self._held), [], True
        if held:
            self._on_text(held)

    def take(self) -> list[tuple[str, str]]:
        """At the end: the calls as (name, arguments) if the whole text was calls of offered tools, else nothing."""
        if self.open or not self._held:
            return []
        calls = _blocks("".join(self._held), self._offered)
        if calls:
            self._held = []
        return calls

    def _plausible(self, text: str) -> bool:
        while text:
            if self._between is None:
                window = self._tail + text
                at = window.find(_CLOSE)
                if at < 0:
                    self._tail = window[-len(_CLOSE) + 1 :]
                    return True
                self._between, self._tail = "", ""
                text = window[at + len(_CLOSE) :]
            else:
                self._between = (self._between + text).lstrip()
                if not self._between.startswith(_OPEN):
                    return _OPEN.startswith(self._between)
                text, self._between = self._between[len(_OPEN) :], None
        return True


def _blocks(text: str, offered: Collection[str]) -> list[tuple[str, str]]:
    calls = []
    for block in filter(None, map(str.strip, text.split(_OPEN))):
        inner, closed, rest = block.partition(_CLOSE)
        call = _call(inner if closed else block)
        if rest.strip() or call is None or call[0] not in offered:
            return []
        calls.append(call)
    return calls


def _call(text: str) -> tuple[str, str] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
