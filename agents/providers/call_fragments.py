"""Tool calls from their fragments, whatever an endpoint does with indexes, ids and names. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any
from uuid import uuid4

from agents.arguments import MAX_ARGUMENTS, collapse_repeated, is_object
from agents.parts import ToolRequest
from chatui.text import clean, clean_json

_KNOWN = frozenset({"index", "id", "type", "function", "name", "arguments"})


class _Call:
    __slots__ = ("extra", "id", "name", "parts", "size")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.parts: list[str] = []
        self.size = 0
        self.extra: dict[str, Any] = {}

    def append(self, text: str) -> None:
        # Beyond the limit the rest is of no use: one character more tells whoever parses it that it is too large.
        room = MAX_ARGUMENTS + 1 - self.size
        if room > 0 and text:
            text = text[:room]
            self.parts.append(text)
            self.size += len(text)

    @property
    def arguments(self) -> str:
        return clean("".join(self.parts))

    def looks_whole(self) -> bool:
        """Cheap first, because it is asked once per fragment by endpoints that repeat the name in each."""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and is_object("".join(self.parts))


class CallFragments:
    """Collects `delta.tool_calls`. `offered` are the names that may be called: they tell a split name from another."""

    def __init__(self, offered: Collection[str] = ()) -> None:
        self._offered = frozenset(offered)
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def last(self) -> tuple[str, int]:
        """Name and length of the arguments of the call that was opened last, for a sign of life."""
        call = self._calls[-1]
        return call.name, call.size

    def add(self, fragment: Any) -> None:
        """Take one item of `delta.tool_calls`; anything that is not an object is nothing."""
        if not isinstance(fragment, dict):
            return
        function = fragment.get("function")
        if not isinstance(function, dict):
            function = fragment  # flat, as some local servers write it
        name, arguments = function.get("name"), function.get("arguments")
        name = name if isinstance(name, str) else ""
        call_id = fragment.get("id")
        call_id = "" if call_id is None or isinstance(call_id, bool | dict | list) else str(call_id)
        call = self._target(_index(fragment.get("index")), call_id, name, arguments)
        call.id = call.id or call_id
        self._name(call, name)
        if isinstance(arguments, str):
            call.append(arguments)
        elif arguments is not None:
            call.append(json.dumps(arguments, ensure_ascii=False))
        if not _KNOWN.issuperset(fragment):
            more = {key: value for key, value in fragment.items() if key not in _KNOWN and value is not None}
            call.extra = {**clean_json(more), **call.extra}

    def _target(self, index: int | None, call_id: str, name: str, arguments: Any) -> _Call:
        current = self._at.get(index) if index is not None else self._calls[-1] if self._calls else None
        if current is None or self._is_another(current, call_id, name, arguments):
            same = None if name else self._continued(call_id)
            current = same or self._open(call_id)
        elif index is None and call_id and not name:
            current = self._by_id(call_id) or current
        if index is not None:
            self._at[index] = current
        return current

    def _continued(self, call_id: str) -> _Call | None:
        """The open call that a fragment without a name at a new index goes on with."""
        if call_id:
            return self._by_id(call_id)
        last = self._calls[-1] if self._calls else None
        return last if last is not None and last.name and not last.looks_whole() else None

    def _by_id(self, call_id: str) -> _Call | None:
        return next((call for call in reversed(self._calls) if call.id == call_id), None)

    def _open(self, call_id: str) -> _Call:
        call = _Call(call_id)
        self._calls.append(call)
        return call

    def _is_another(self, current: _Call, call_id: str, name: str, arguments: Any) -> bool:
        """Whether a fragment that names a tool begins a new call although `current` is open at its place."""
        if not name or not current.name:
            return False
        if call_id and current.id and call_id != current.id:
            return True
        begins = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        if name == current.name:
            # The same name again is a repetition, unless it comes with other arguments after whole ones.
            fresh = begins.lstrip().startswith("{") and current.looks_whole()
            return fresh and begins.strip() != "".join(current.parts).strip()
        if current.parts:
            return name in self._offered or current.looks_whole()
        return name in self._offered and current.name in self._offered and not self._is_name(current.name + name)

    def _is_name(self, name: str) -> bool:
        return any(offered.startswith(name) for offered in self._offered)

    def _name(self, call: _Call, name: str) -> None:
        if not name or name == call.name:
            return
        if not call.name or name.startswith(call.name):
            call.name = name  # whole, or grown with each fragment
        elif not call.parts and (call.name not in self._offered or self._is_name(call.name + name)):
            call.name += name

    def requests(self, *, cut: bool = False) -> list[ToolRequest]:
        """The calls in order, each with an id of its own. `cut`: the answer was cut off, so the last is not whole."""
        requests: list[ToolRequest] = []
        seen: set[str] = set()
        calls = [call for call in self._calls if call.name or call.parts]
        for call in calls:
            call_id = clean(call.id)
            if not call_id or call_id in seen:
                call_id = f"call_{uuid4().hex[:24]}"
            seen.add(call_id)
            arguments = collapse_repeated(call.arguments)
            complete = not cut or (call is not calls[-1] and is_object(arguments))
            requests.append(ToolRequest(call_id, clean(call.name).strip(), arguments, call.extra, complete))
        return requests


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
