"""`Draft`: an answer while it is written. Folding the loop's events gives the parts that are stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

Part = dict[str, Any]


class Draft:
    """The parts of one assistant message, appended to by the events of a turn.

    Invariant: the text of its text parts is the concatenation of the deltas that were added, in order.
    """

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts: list[Part] = [dict(part) for part in parts]
        self._given = len(self._parts)
        self._open: list[str] | None = None  # chunks of the last part, while it grows
        self._began = 0.0

    def add_text(self, text: str, round: int) -> None:
        self._grow("text", text, round)

    def add_reasoning(self, text: str, round: int) -> None:
        self._grow("reasoning", text, round)

    def add_trailing(self, text: str, round: int) -> None:
        """Text after the round's first call: kept and returned to the model, shown folded."""
        self._settle()
        self._parts.append({"type": "text", "text": text, "round": round, "kind": "trailing"})

    def add_call(self, call_id: UUID, round: int) -> None:
        self._settle()
        for part in self._parts:
            if part["type"] == "text" and part["round"] == round and "kind" not in part:
                part["kind"] = "preamble"
        self._parts.append({"type": "call", "id": str(call_id), "round": round})

    def add_notice(self, code: str, message: str, detail: str = "") -> None:
        self._settle()
        self._parts.append({"type": "notice", "code": code, "message": message, "detail": detail})

    def mark_refusal(self) -> None:
        """The text that was written last is the model's refusal to answer."""
        self._settle()
        for part in reversed(self._parts):
            if part["type"] == "text":
                part["kind"] = "refusal"
                return

    def parts(self) -> list[Part]:
        """The parts so far, as they are stored; later additions do not change what was returned."""
        if self._open:
            last = self._parts[-1]
            last["text"] += "".join(self._open)
            self._open = []
        return [dict(part) for part in self._parts]

    def written_in(self, round: int) -> list[str]:
        """What the model has written in one round, reasoning too; not what another turn wrote before it."""
        parts = (part for part in self.parts()[self._given :] if part.get("round") == round)
        return [part["text"] for part in parts if part["type"] in ("text", "reasoning")]

    def text(self) -> str:
        """What a person reads as the answer: every text part but the folded ones."""
        return "\n\n".join(
            part["text"] for part in self.parts() if part["type"] == "text" and part.get("kind") != "trailing"
        )

    def _grow(self, kind: str, text: str, round: int) -> None:
        last = self._parts[-1] if self._parts else None
        if self._open is None or last is None or last["type"] != kind or last["round"] != round:
            self._settle()
            self._parts.append({"type": kind, "text": "", "round": round})
            self._open, self._began = [], time.monotonic()
        assert self._open is not None
        self._open.append(text)

    def _settle(self) -> None:
        if self._open is None:
            return
        last = self._parts[-1]
        last["text"] += "".join(self._open)
        if last["type"] == "reasoning":
            last["duration_ms"] = round_ms(time.monotonic() - self._began)
        self._open = None


def round_ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
