"""Many tools: rarely used ones are not offered until the model finds them with `search_tools`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from agents.parts import JSONObject, ToolResult, ToolStatus, error_result
from agents.tool_index import Described, ToolIndex
from chatui.text import shorten
from mcpservers.offers import OfferedTool

SEARCH_TOOLS = "search_tools"
_USUAL, _MOST = 5, 10  # tools that one search finds
_LONGEST_QUERY = 300  # characters
_OWN = 2  # what our own tools take of the most that may be offered
_FOUND = re.compile(r"^- ([a-zA-Z0-9_-]{1,64}): ", re.MULTILINE)


# --- What is offered ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """How much may be offered: `usual` tools, with those found since `most`; `tokens` for each of the two kinds."""

    usual: int
    most: int
    tokens: int

    @classmethod
    def of(cls, context: int) -> Room:
        """The room of a model with `context` tokens."""
        most = max(settings.MCP["OFFER_MAX_TOOLS"] - _OWN, 1)
        return cls(
            min(settings.MCP["OFFER_DEFER_ABOVE"], most), most, int(context * settings.MCP["OFFER_CONTEXT_SHARE"])
        )

    def is_enough_for(self, sizes: Mapping[str, int]) -> bool:
        return len(sizes) <= self.usual and sum(sizes.values()) <= self.tokens


class Deferral:
    """Which of many tools are offered now: those used most, chosen once, and those found or used since.

    `sizes` are the tools in the order of the catalogue, each with about its tokens; `uses` how often each was called
    of late. What was found stays, until what is found later needs its room: the one not asked for longest goes first.
    """

    def __init__(self, sizes: Mapping[str, int], room: Room, uses: Mapping[str, int]) -> None:
        self._sizes, self._room = dict(sizes), room
        self._usual = self._most_used(uses)
        self._found: dict[str, int] = {}  # in the order in which they were found; when they were last asked for
        self._time = 0

    def _most_used(self, uses: Mapping[str, int]) -> list[str]:
        chosen: set[str] = set()
        tokens = 0
        # Python sorts stably: tools that are used equally often stay in the catalogue's order.
        for name in sorted(self._sizes, key=lambda name: -uses.get(name, 0)):
            if len(chosen) < self._room.usual and tokens + self._sizes[name] <= self._room.tokens:
                chosen.add(name)
                tokens += self._sizes[name]
        return [name for name in self._sizes if name in chosen]

    @property
    def offered(self) -> list[str]:
        """Names in a stable order: what is found comes at the end, so that a prompt's beginning stays as it was."""
        return [*self._usual, *self._found]

    @property
    def deferred(self) -> list[str]:
        offered = set(self.offered)
        return [name for name in self._sizes if name not in offered]

    def forget(self, name: str) -> None:
        """Its server has no such tool any more: it is neither offered nor found."""
        self._sizes.pop(name, None)
        self._found.pop(name, None)
        self._usual = [usual for usual in self._usual if usual != name]

    def has(self, name: str) -> bool:
        return name in self._sizes

    def reveal(self, names: Sequence[str]) -> None:
        """Offer these too, the first the most wanted one; at least that one always."""
        for name in reversed(names):
            if name in self._sizes and name not in self._usual:
                self._time += 1
                self._found[name] = self._time
        while len(self._found) > 1 and self._is_too_much():
            del self._found[min(self._found, key=self._found.__getitem__)]

    def _is_too_much(self) -> bool:
        tokens = sum(self._sizes[name] for name in self._found)
        return len(self._usual) + len(self._found) > self._room.most or tokens > self._room.tokens


def tokens_of(tool: OfferedTool) -> int:
    """About how many tokens the tool takes in a request."""
    return 8 + tool.definition.size // 4


# --- The tool -----------------------------------------------------------------------------------------------------


class SearchTools:
    """Finds tools by words; what it finds is offered from the next round on."""

    name = SEARCH_TOOLS
    title = "Search tools"
    is_offered = True
    parameters: JSONObject = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What you want to do, in a few words."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"How many tools to find: {_USUAL} if left out, {_MOST} at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, tools: Sequence[OfferedTool], deferral: Deferral) -> None:
        self._tools, self._deferral = {tool.exposed_name: tool for tool in tools}, deferral
        self._index: ToolIndex | None = None
        deferred = [self._tools[name] for name in deferral.deferred]
        titles = list(dict.fromkeys(tool.server_title for tool in deferred))
        shown = ", ".join(shorten(title, 60) for title in titles[:12]) + (", …" if len(titles) > 12 else "")
        self.description = (
            f"You have {len(deferred)} more tools than are listed, of: {shown}. Search them by what you want to do, "
            "before you say that you cannot do it. Tools that are found can be called from your next step on."
        )

    async def run(self, arguments: JSONObject) -> ToolResult:
        query = arguments["query"].strip()
        if not query:
            return error_result("Say in a few words what you want to do.")
        query = query[:_LONGEST_QUERY]
        # In a thread: a thousand tools take longer than other turns should wait.
        found = await asyncio.to_thread(self._search, query, min(arguments.get("limit", _USUAL), _MOST))
        if not found:
            text = f"No tool was found for “{query}”. Try other words, or the name of a server."
            return ToolResult(ToolStatus.OK, text, ({"type": "text", "text": text},))
        before = set(self._deferral.offered)
        self._deferral.reveal(found)
        now = set(self._deferral.offered)
        lines = [_line(self._tools[name], name in before) for name in found if name in now]
        text = "\n".join(["These tools fit, the best first. You can call them from your next step on.", *lines])
        return ToolResult(ToolStatus.OK, text, ({"type": "text", "text": text},))

    def _search(self, query: str, limit: int) -> list[str]:
        if self._index is None:
            self._index = ToolIndex([_described(tool) for tool in self._tools.values()])
        gone = sum(not self._deferral.has(name) for name in self._tools)
        return [name for name in self._index.search(query, limit + gone) if self._deferral.has(name)][:limit]

    def heard(self, result: ToolResult) -> None:
        """Of no use here."""


def _described(tool: OfferedTool) -> Described:
    server = f"{tool.server_title} {tool.server_slug}"
    return Described(tool.exposed_name, tool.name, tool.title, tool.description, server)


def _line(tool: OfferedTool, known: bool) -> str:
    words = shorten(tool.description or tool.title or tool.name, 200)
    return f"- {tool.exposed_name}: [{shorten(tool.server_title, 60)}] {words}" + (" (listed already)" if known else "")


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call that the model made before: the tool's exposed name, and what the model was told if it went well."""

    name: str
    text: str = ""


def recall(deferral: Deferral, calls: Iterable[EarlierCall]) -> None:
    """Reveal what the conversation's earlier calls, oldest first, have found and used."""
    for call in calls:
        deferral.reveal(_FOUND.findall(call.text) if call.name == SEARCH_TOOLS else [call.name])
