"""Values of the tool loop: what a model is sent, what it asks for, what a tool answers. Pure: no Django, no mcp."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

JSONObject = dict[str, Any]


# --- What a model is sent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextContent:
    text: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image for a model that sees. `name` is how arguments may refer to it (`image_1`)."""

    data: bytes
    media_type: str
    name: str = ""


Content = TextContent | ImageContent


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call as the model asked for it: `arguments` is the raw text, `extra` goes back with it unchanged.

    `complete` is False for a call that was cut off; it is never run.
    """

    id: str
    name: str
    arguments: str
    extra: JSONObject = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message for a model. `tool_calls` only with role assistant, `tool_call_id` only with role tool."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Sequence[Content] = ()
    tool_calls: Sequence[ToolRequest] = ()
    tool_call_id: str = ""
    reasoning: str = ""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, TextContent))


def text_message(role: Literal["system", "user", "assistant", "tool"], text: str) -> ModelMessage:
    return ModelMessage(role, (TextContent(text),) if text else ())


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is offered it: `name` matches `^[a-zA-Z0-9_-]{1,64}$`, `parameters` is repaired JSON Schema."""

    name: str
    description: str
    parameters: JSONObject


# --- What a model answers -----------------------------------------------------------------------------------------


class Finish(StrEnum):
    """Why a completion ended. `CUT` is ours: the stream ended without a finish and without `[DONE]`."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text of the answer, to be shown at once. Never sent for text that follows the round's first tool call."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ArgumentsProgress:
    """The model is still writing a tool call; `characters` counts what has come. For liveness, at most one a second."""

    name: str
    characters: int

    @property
    def words(self) -> str:
        """For a person: the tool as its server calls it, and how much there is, once there is something."""
        written = f" ({self.characters} characters)" if self.characters else ""
        return f"Preparing a call of {self.name.rpartition('__')[2]}{written}"


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of one completion, complete: `text` is the concatenation of its `TextChunk`s."""

    text: str = ""
    reasoning: str = ""
    requests: Sequence[ToolRequest] = ()
    trailing_text: str = ""  # after the first tool call: kept, returned to the model, not streamed
    finish: Finish = Finish.STOP
    refusal: bool = False
    usage: TokenUsage | None = None
    model: str = ""  # as the endpoint named itself


ModelEvent = TextChunk | ReasoningChunk | ArgumentsProgress | Completion


# --- What a tool answers ------------------------------------------------------------------------------------------


class ToolStatus(StrEnum):
    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a tool's result brought, not yet stored."""

    data: bytes
    media_type: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended. `text` is for the model (never empty, never base64); `content` is for people: JSON parts.

    A part of `content` is `{type: "text", text}`, `{type: "resource", uri, title?, media_type?, text?}`,
    `{type: "link", uri, title?}`, `{type: "json", value}` or `{type: "artifact", index}`, an index into `artifacts`.
    """

    status: ToolStatus
    text: str
    content: Sequence[JSONObject] = ()
    artifacts: Sequence[Artifact] = ()
    duration_ms: int = 0
    account_id: UUID | None = None  # of the linked account that it acted with
    refusal: str = ""  # why it was denied after it was allowed


def error_result(text: str) -> ToolResult:
    """A call that failed before any tool ran, in the same words for the model and for people."""
    return ToolResult(ToolStatus.ERROR, text, ({"type": "text", "text": text},))


# --- How a call is decided ----------------------------------------------------------------------------------------


class Decision(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class PersonNeeded:
    """A call that stopped before it took effect: a person does something first, then it is made again.

    `card` is what people are shown, `kept` what the toolbox is given back when the call is made again; nobody sees it.
    """

    kind: Literal["authorization", "elicitation"]
    card: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """What a person did about a `PersonNeeded`: `content` is what was entered, for an elicitation that was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: JSONObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a call is made again with: what it needed, and the answer."""

    needed: PersonNeeded
    answer: PersonAnswer


@dataclass(frozen=True, slots=True)
class Seal:
    """What an approval is for, as hashes: the tool's definition and the arguments. It covers nothing else."""

    definition: str
    arguments: str


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A request after the toolbox looked at it: resolved, its arguments checked, and decided, with the reason.

    With `result` set it is finished before it began (unknown tool, bad arguments, denied). `key` tells a repeated
    call: the same tool with the same arguments.
    """

    request: ToolRequest
    decision: Decision
    reason: str = ""
    arguments: JSONObject | None = None
    server_id: UUID | None = None
    server: str = ""  # slug
    server_title: str = ""
    tool: str = ""  # as the server calls it
    title: str = ""
    claims: Mapping[str, Any] = field(default_factory=dict)  # the server's hints, shown as claims
    account: str | None = None  # the name of the linked account that it acts with
    can_edit: bool = False  # a person who is asked may change the arguments
    can_remember: bool = False  # … may answer *Always allow*
    approvers: Mapping[UUID, str] | None = None  # names by id: the only ones who may answer; None: whose turn it is
    definition: str = ""  # hash of the tool's, as it is now
    input_schema: JSONObject | None = None  # the tool's own, which changed arguments must keep to
    result: ToolResult | None = None
    resumed: Resumed | None = None  # it was made before, and needed a person

    @property
    def key(self) -> tuple[str, str]:
        if self.arguments is None:
            return self.request.name, self.request.arguments
        return self.request.name, json.dumps(self.arguments, sort_keys=True)

    @property
    def seal(self) -> Seal:
        return Seal(self.definition, hashlib.sha256("\0".join(self.key).encode("utf-8", "replace")).hexdigest())
