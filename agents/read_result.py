"""`read_result`: our tool by which a model pages through a result that was too long to be told whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from django.conf import settings

from agents.context import OLD_OUTPUT_CHARACTERS, estimate_tokens
from agents.parts import JSONObject, ToolResult, ToolStatus, error_result
from mcpservers.cuts import READ_RESULT, find_name, read_cut

_WORDS = 300  # characters of a page that are ours
USUAL_PAGE = OLD_OUTPUT_CHARACTERS - _WORDS  # so that a page is not cut again later


class WholeTexts(Protocol):
    """The whole texts of the results of one conversation, for one actor."""

    async def find(self, name: str) -> str | None:
        """The text of this name, read with the actor's present rights; None if there is none for them."""
        ...


class ReadResult:
    """Pages through the whole texts of cut results, by character offset.

    It is offered once the model was told a cut result, or results so long that its context may force them to be cut.
    `context` is the model's, in tokens; `earlier` are the results that it was told before, in words.
    """

    name = READ_RESULT
    title = "Read on in a result"
    description = (
        "Reads on in a result that was cut: any part of its whole text, by character offset. "
        "The note where a result was cut gives its name and the offset to go on from."
    )

    def __init__(self, texts: WholeTexts, context: int, earlier: Iterable[str] = ()) -> None:
        self._texts, self._context = texts, context
        self._longest_page = min(settings.MCP["RESULT_MAX_CHARACTERS"], max(context, 2 * _WORDS)) - _WORDS
        self._cut = self._long = False
        self._tokens = 0
        for text in earlier:
            self._heard(text)

    @property
    def parameters(self) -> JSONObject:
        usual = min(USUAL_PAGE, self._longest_page)
        limit = f"How many characters: {usual} if left out, {self._longest_page} at most."
        return {
            "type": "object",
            "properties": {
                "result": {"type": "string", "description": "The name that the note gives."},
                "offset": {"type": "integer", "minimum": 0, "description": "The first character, counted from 0."},
                "limit": {"type": "integer", "minimum": 1, "description": limit},
            },
            "required": ["result"],
            "additionalProperties": False,
        }

    @property
    def is_offered(self) -> bool:
        return self._cut or (self._long and self._tokens > self._context // 2)

    def heard(self, result: ToolResult) -> None:
        self._heard(result.text)

    def _heard(self, text: str) -> None:
        self._cut = self._cut or read_cut(text) is not None
        self._long = self._long or len(text) > OLD_OUTPUT_CHARACTERS
        self._tokens += estimate_tokens(text)

    async def run(self, arguments: JSONObject) -> ToolResult:
        name = find_name(arguments["result"])
        text = await self._texts.find(name) if name else None
        if text is None:
            return error_result(
                f"There is no result “{arguments['result'][:100]}” in this conversation. "
                "The note where a result was cut gives its name."
            )
        offset = arguments.get("offset", 0)
        if offset > 0 and offset >= len(text):
            return error_result(f"{name} has {len(text)} characters: there is nothing from {offset} on.")
        return _page(name, text, offset, min(arguments.get("limit", USUAL_PAGE), self._longest_page))


def _page(name: str, text: str, offset: int, limit: int) -> ToolResult:
    end = min(offset + limit, len(text))
    where = f"Characters {offset} to {end} of {len(text)} of {name}"
    rest = (
        f"[{len(text) - end} characters follow: go on with offset {end}.]" if end < len(text) else "[This is the end.]"
    )
    # For people the place is enough: they have the whole as a file.
    return ToolResult(ToolStatus.OK, f"{where}:\n{text[offset:end]}\n{rest}", ({"type": "text", "text": f"{where}."},))
