"""Reasoning that a model writes into its answer between tags: told apart while it streams, tags cut anywhere. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

# Recognised only where an answer begins: in the middle of one it is text about tags.
_PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}
# Some chat templates open the tag in the prompt, so that only the closing one is in the answer.
_LONE_CLOSER = "</think>"
_LONGEST = max(map(len, _PAIRS))
_MENTION = "<think"  # an answer that names the opening tag in passing is about tags


class _State(Enum):
    START = "start"
    REASONING = "reasoning"
    WATCHING = "watching"
    TEXT = "text"


class ThinkTags:
    """Splits text into `on_text` and `on_reasoning`; holds back only what may still become a tag.

    A closing tag that was never opened calls `on_lone_close`: what came before it was reasoning. With `inside` the
    answer is known to begin in the middle of its reasoning. White space around the tags belongs to neither side.
    """

    def __init__(
        self,
        on_text: Callable[[str], None],
        on_reasoning: Callable[[str], None],
        on_lone_close: Callable[[], None],
        *,
        inside: bool = False,
    ) -> None:
        self._on_text, self._on_reasoning, self._on_lone_close = on_text, on_reasoning, on_lone_close
        self._state = _State.REASONING if inside else _State.START
        self._closer = _LONE_CLOSER
        self._held = ""
        self._tagged = False  # a block was closed: white space before the answer is dropped
        self._begun = False  # of the present block
        self._settled = False
        self._quoted = False  # the last text ended in a backtick
        self.inside = inside

    def feed(self, text: str) -> None:
        watching = self._state is _State.WATCHING
        if self._state is _State.TEXT or (watching and not self._held and "<" not in text):
            self._show(text)
        else:
            text, self._held = self._held + text, ""
            while text:
                text = self._step(text)

    def settle(self) -> None:
        """Reasoning came in a field of its own: a closing tag in the text is text."""
        self._settled = True
        if self.inside:
            self._state, self.inside = _State.START, False
        elif self._state is _State.WATCHING:
            self._state = _State.TEXT
            self.flush()

    def flush(self) -> None:
        """Nothing will complete what is held: it is what it looks like."""
        held, self._held = self._held, ""
        if self._state is _State.REASONING:
            self._reason(held)
        elif self._state is not _State.START:
            self._show(held)
        elif held.strip():
            self._state = _State.TEXT
            self._show(held.lstrip() if self._tagged else held)

    def _step(self, text: str) -> str:
        """Use up the beginning of `text`; what is left."""
        match self._state:
            case _State.START:
                return self._start(text)
            case _State.REASONING:
                return self._reasoning(text)
            case _State.WATCHING:
                return self._watch(text)
            case _State.TEXT:
                self._show(text)
                return ""

    def _start(self, text: str) -> str:
        visible = text.lstrip()
        head = visible[:_LONGEST].lower()
        for opener, closer in _PAIRS.items():
            if head.startswith(opener.lower()):
                self._state, self._closer, self._begun = _State.REASONING, closer, False
                return visible[len(opener) :]
        if not visible or any(opener.lower().startswith(head) for opener in _PAIRS):
            self._held = text
            return ""
        self._state = _State.TEXT if self._tagged or self._settled else _State.WATCHING
        return visible if self._tagged else text

    def _reasoning(self, text: str) -> str:
        before, found, after = _partition(text, self._closer)
        if not found:
            self._held = _possible_start(text, self._closer)
            self._reason(text[: len(text) - len(self._held)])
            return ""
        self._reason(before)
        self._state, self._tagged, self.inside = _State.START, True, False
        return after

    def _watch(self, text: str) -> str:
        before, found, after = _partition(text, _LONE_CLOSER)
        if _partition(before, _MENTION)[1] or (found and (before[-1:] == "`" or (not before and self._quoted))):
            self._state = _State.TEXT
            return text
        if not found:
            self._held = _possible_start(text, _LONE_CLOSER) or _possible_start(text, _MENTION)
            self._show(text[: len(text) - len(self._held)])
            return ""
        self._show(before)
        self._on_lone_close()
        self._state, self._tagged = _State.START, True
        return after

    def _show(self, text: str) -> None:
        if text:
            self._quoted = text[-1] == "`"
            self._on_text(text)

    def _reason(self, text: str) -> None:
        if not self._begun:
            text = text.lstrip()
        if text:
            self._begun = True
            self._on_reasoning(text)


def _partition(text: str, tag: str) -> tuple[str, str, str]:
    match = re.search(re.escape(tag), text, re.IGNORECASE)
    return (text[: match.start()], match[0], text[match.end() :]) if match else (text, "", "")


def _possible_start(text: str, tag: str) -> str:
    """The end of `text` that may be the beginning of `tag`."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text[-length:].lower() == tag[:length].lower():
            return text[-length:]
    return ""
