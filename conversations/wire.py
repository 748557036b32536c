"""The frames of the websocket: closed unions, both ways. `docs/reference/websocket.md` describes each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from chatui.errors import ChatUIError, InvalidRequestError
from chatui.jsontext import TooDeepError, received
from chatui.text import clean, clean_json
from conversations.frame_bounds import fitted

PROTOCOL = 1


class UnknownFrameError(InvalidRequestError):
    """The frame's type is not one of ours."""

    code = "unknown_type"
    public_message = "This kind of frame is not known."


# --- Client → server ----------------------------------------------------------------------------------------------


class ClientFrame(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    request_id: UUID | None = None


class TextInput(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    type: Literal["text"]
    text: str


class AttachmentInput(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    type: Literal["attachment"]
    id: UUID


AnyInput = Annotated[TextInput | AttachmentInput, Field(discriminator="type")]


class TurnStart(ClientFrame):
    type: Literal["turn.start"]
    request_id: UUID
    conversation_id: UUID | None = None
    agent: str | None = None
    parent_id: UUID | Literal["root"] | None = None  # null: the current leaf; root: a new first question
    content: list[AnyInput] = Field(min_length=1, max_length=20)
    timezone: str = Field(default="", max_length=64)
    tools: bool = True
    servers: list[str] | None = Field(default=None, max_length=200)
    accounts: dict[str, str] = Field(default_factory=dict)
    temporary: bool = False


class TurnRegenerate(ClientFrame):
    type: Literal["turn.regenerate"]
    request_id: UUID
    message_id: UUID
    model: str | None = None
    timezone: str = Field(default="", max_length=64)


class TurnContinue(ClientFrame):
    type: Literal["turn.continue"]
    request_id: UUID
    message_id: UUID
    timezone: str = Field(default="", max_length=64)


class TurnStop(ClientFrame):
    type: Literal["turn.stop"]
    turn_id: UUID


class TurnFollow(ClientFrame):
    type: Literal["turn.follow"]
    turn_id: UUID
    after: int = Field(default=0, ge=0)


class CallDecide(ClientFrame):
    type: Literal["call.decide"]
    call_id: UUID
    question_id: UUID | None = None
    decision: Literal["allow_once", "allow_always", "deny"]
    scope: Literal["conversation", "agent", "always"] | None = None
    arguments: dict[str, Any] | None = None
    note: str = Field(default="", max_length=4000)


class ElicitationAnswer(ClientFrame):
    type: Literal["elicitation.answer"]
    elicitation_id: UUID
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class CallCancel(ClientFrame):
    type: Literal["call.cancel"]
    call_id: UUID


class Ping(ClientFrame):
    type: Literal["ping"]


AnyClientFrame = Annotated[
    TurnStart
    | TurnRegenerate
    | TurnContinue
    | TurnStop
    | TurnFollow
    | CallDecide
    | ElicitationAnswer
    | CallCancel
    | Ping,
    Field(discriminator="type"),
]
_adapter: TypeAdapter[Any] = TypeAdapter(AnyClientFrame)
CLIENT_TYPES = frozenset(
    frame.model_fields["type"].annotation.__args__[0]  # type: ignore[union-attr]  # a Literal has __args__
    for frame in (
        TurnStart,
        TurnRegenerate,
        TurnContinue,
        TurnStop,
        TurnFollow,
        CallDecide,
        ElicitationAnswer,
        CallCancel,
        Ping,
    )
)


class FrameError(InvalidRequestError):
    """A frame that cannot be understood; carries the `request_id` where one could be read."""

    def __init__(self, message: str, *, code: str = "invalid_frame", request_id: str | None = None) -> None:
        super().__init__(public_message=message)
        self.frame_code, self.request_id = code, request_id


def parse(text: str) -> Any:
    """The client frame in `text`, its strings cleaned. Raises `FrameError`, which names the field and what is wrong."""
    try:
        value = received(clean(text))
    except TooDeepError:
        raise FrameError("This JSON is nested too deeply.") from None
    except ValueError as error:
        raise FrameError(f"This is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise FrameError("A frame is a JSON object.")
    request_id = value.get("request_id") if isinstance(value.get("request_id"), str) else None
    if not isinstance(value.get("type"), str) or value["type"] not in CLIENT_TYPES:
        raise FrameError(
            f"Unknown frame type {str(value.get('type'))[:80]!r}.", code="unknown_type", request_id=request_id
        )
    try:
        # Cleaned again: `\u0000` escapes inside the JSON become NUL only now.
        return _adapter.validate_python(clean_json(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"][1:]) or "frame"
        raise FrameError(f"{where}: {first['msg']}.", request_id=request_id) from None


# --- Server → client ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFrame:
    """A frame of a turn; the feed numbers it. Encoded as it stands, `type` first."""

    type: ClassVar[str]

    def encode(self, turn_id: UUID, seq: int) -> str:
        body = {"type": self.type, "turn_id": turn_id, "seq": seq}
        body.update({name: getattr(self, name) for name in self.__dataclass_fields__})
        return fitted(body).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(TurnFrame):
    type: ClassVar[str] = "turn.started"
    request_id: UUID
    conversation_id: UUID
    user_message_id: UUID
    message_id: UUID
    agent: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(TurnFrame):
    type: ClassVar[str] = "status"
    code: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(TurnFrame):
    type: ClassVar[str] = "text.delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(TurnFrame):
    type: ClassVar[str] = "reasoning.delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(TurnFrame):
    type: ClassVar[str] = "call.started"
    call_id: UUID
    server: str
    server_title: str
    tool: str
    title: str
    arguments: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CallApproval(TurnFrame):
    type: ClassVar[str] = "call.approval"
    call_id: UUID
    question_id: UUID
    server: str
    server_title: str
    tool: str
    title: str
    account: str | None
    arguments: Any
    claims: Any
    reason: str
    expires_at: str
    can_edit: bool
    can_remember: bool = False
    can_decide: bool = True  # by the person whose turn it is
    approvers: Any = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequired(TurnFrame):
    """Somebody has to sign in at a server. Without `call_id` the turn goes on without the server's tools."""

    type: ClassVar[str] = "authorization.required"
    call_id: UUID | None
    question_id: UUID | None
    server: str
    title: str
    url: str
    scopes: Any
    account: str | None
    host: str
    expires_at: str | None
    new_scopes: Any = ()  # of `scopes`: beyond what the account has


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCompleted(TurnFrame):
    """`account` is null where the person declined."""

    type: ClassVar[str] = "authorization.completed"
    call_id: UUID | None
    server: str
    account: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationRequested(TurnFrame):
    type: ClassVar[str] = "elicitation.requested"
    elicitation_id: UUID
    call_id: UUID
    server: str
    title: str
    mode: str
    message: str
    schema: Any
    order: Any  # names of the fields, as the server has them
    url: str | None
    host: str
    step: int
    steps: int
    expires_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationResolved(TurnFrame):
    type: ClassVar[str] = "elicitation.resolved"
    elicitation_id: UUID
    call_id: UUID
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProgress(TurnFrame):
    type: ClassVar[str] = "call.progress"
    call_id: UUID
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished(TurnFrame):
    type: ClassVar[str] = "call.finished"
    call_id: UUID
    status: str
    content: Any
    artifacts: Any
    duration_ms: int
    decided_by: str | None = None
    decided_at: str | None = None  # ISO 8601


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(TurnFrame):
    type: ClassVar[str] = "notice"
    code: str
    message: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(TurnFrame):
    """The turn's sums so far."""

    type: ClassVar[str] = "usage"
    input_tokens: int
    output_tokens: int
    cost: float | None
    estimated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWaiting(TurnFrame):
    type: ClassVar[str] = "turn.waiting"
    reason: str  # sent as "for"
    ids: list[UUID]

    def encode(self, turn_id: UUID, seq: int) -> str:
        body = {"type": self.type, "turn_id": turn_id, "seq": seq, "for": self.reason, "ids": self.ids}
        return fitted(body).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResumed(TurnFrame):
    type: ClassVar[str] = "turn.resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished(TurnFrame):
    type: ClassVar[str] = "turn.finished"
    outcome: str
    message: Any
    error: Any


def frame(type: str, **fields: Any) -> str:
    """A frame outside a turn, encoded: `hello`, `pong`, `conversation.updated`, `turn.changed`, `turn.snapshot`, …"""
    return fitted({"type": type, **fields}).decode()


def error_frame(error: ChatUIError, request_id: object = None) -> str:
    code = getattr(error, "frame_code", error.code)
    more = {"fields": error.fields} if hasattr(error, "fields") else {}
    return frame(
        "error", request_id=str(request_id) if request_id else None, code=code, message=error.public_message, **more
    )
