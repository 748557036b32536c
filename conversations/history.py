"""Stored messages as a model is sent them: always valid for an endpoint, within a budget.

Pure over loaded rows: no query, no file. `conversations.attached` loads what messages name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from agents.answers import OpenCall, OpenRound
from agents.context import IMAGE_TYPES, Answered, fit, input_budget, round_messages, shortened_notice
from agents.events import Noticed
from agents.limits import CallKey, FailureCount
from agents.own_results import INTERRUPTED
from agents.parts import (
    Artifact,
    Content,
    ImageContent,
    JSONObject,
    ModelMessage,
    PersonAnswer,
    PersonNeeded,
    Resumed,
    Seal,
    TextContent,
    ToolRequest,
    ToolResult,
    ToolStatus,
    text_message,
)
from agents.providers.chat_model import Capabilities
from conversations.models import Message, Question, ToolCall

__all__ = ["AttachedFile", "History", "OpenRound", "model_messages"]

GO_ON = "Go on exactly where your last message stopped. Do not repeat anything of it, and do not comment on the break."
UNSTARTED = ToolResult(ToolStatus.INTERRUPTED, "not run: the turn ended before this call was made")

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """What a model may be given of a file: its text, or the bytes of an image as it is fit for models."""

    name: str
    content_type: str
    text: str = ""
    data: bytes = b""

    @property
    def is_image(self) -> bool:
        return self.content_type in IMAGE_TYPES


@dataclass(frozen=True, slots=True)
class History:
    """`messages` without a system prompt, and the round that is not over, if a turn is resumed.

    `images` are the user's, by the names that arguments may use (`image_1`), whether or not the model sees them.
    """

    messages: list[ModelMessage]
    open_round: OpenRound | None = None
    notices: Sequence[Noticed] = ()
    images: Mapping[str, ImageContent] = field(default_factory=dict)


def model_messages(
    path: Sequence[Message],
    calls: Mapping[UUID, Sequence[ToolCall]],
    *,
    capabilities: Capabilities,
    attachments: Mapping[str, AttachedFile] | None = None,
    continuing: bool = False,
    first_part: int = 0,
    reserved: int = 0,
    readable: bool = False,
) -> History:
    """The messages of `path`, root to leaf, for a model.

    `path` may end with the answer that is being written (running or waiting): its last round of calls is then the
    `open_round`. `calls` are those of each message, with `questions` and `artifacts` prefetched; `attachments` the
    files that messages and artifacts name, by id. `continuing`: the answer's parts before `first_part` stand, and the
    model is asked to go on from them. `reserved` tokens of the context belong to the system prompt and tools.
    `readable`: the model can page through outputs that are cut.
    """
    files = attachments or {}
    images: dict[str, ImageContent] = {}
    messages: list[ModelMessage] = []
    open_round: OpenRound | None = None
    for position, message in enumerate(path):
        if message.role == Message.Role.USER:
            messages += _question(message, files, images, capabilities)
            continue
        answer = _Answer(message, calls.get(message.pk, ()), files, capabilities)
        if position == len(path) - 1 and message.status in (Message.Status.RUNNING, Message.Status.WAITING):
            told, open_round = answer.unfinished(first_part if continuing else 0)
            messages += told
        else:
            messages += answer.messages(answer.rounds)
    fitted = fit(_from_a_question(messages), input_budget(capabilities, reserved), readable=readable)
    shorter = (fitted.cut or fitted.dropped) and open_round is None
    return History(fitted.messages, open_round, [Noticed(*shortened_notice(fitted))] if shorter else [], images)


def _from_a_question(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """`messages` from the first one of a user: a path that was loaded in part may begin with an answer."""
    start = next((position for position, message in enumerate(messages) if message.role == "user"), len(messages))
    return list(messages[start:])


# --- Questions ----------------------------------------------------------------------------------------------------


def _question(
    message: Message, files: Mapping[str, AttachedFile], images: dict[str, ImageContent], capabilities: Capabilities
) -> list[ModelMessage]:
    content: list[Content] = []
    for part in message.parts:
        if part["type"] == "text" and part["text"]:
            _add_text(content, part["text"])
        elif part["type"] == "attachment":
            _add_file(content, files.get(str(part["id"])), images, capabilities)
    return [ModelMessage("user", content)] if content else []


def _add_file(
    content: list[Content], file: AttachedFile | None, images: dict[str, ImageContent], capabilities: Capabilities
) -> None:
    if file is None:
        _add_text(content, "[A file that is no longer available]")
        return
    name = " ".join(file.name.split())
    if file.is_image:
        image = ImageContent(file.data, file.content_type, f"image_{len(images) + 1}")
        images[image.name] = image
        if capabilities.images and file.data:
            _add_text(content, f"[{image.name}: {name}]")
            content.append(image)
        else:
            _add_text(content, f"[{image.name}: {name}. You cannot see it.]")
    elif file.text:
        _add_text(content, f"[File {name}]\n{file.text}\n[End of file {name}]")
    else:
        _add_text(content, f"[File {name} ({file.content_type}). It holds no text that could be read.]")


def _add_text(content: list[Content], text: str) -> None:
    last = content[-1] if content else None
    if isinstance(last, TextContent):
        content[-1] = TextContent(f"{last.text}\n\n{text}")
    else:
        content.append(TextContent(text))


# --- Answers ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Round:
    """One completion as it was stored: what was written before the calls, the calls, what came after them."""

    start: int  # index of its first part
    number: int = 1
    text: str = ""
    reasoning: str = ""
    trailing_text: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def take(self, part: Part, row: ToolCall | None) -> None:
        if row is not None:
            self.calls.append(row)
        elif part["type"] == "reasoning":
            self.reasoning += part["text"]
        elif part.get("kind") == "trailing":
            self.trailing_text += part["text"]
        elif part["type"] == "text":
            self.text += part["text"]

    def goes_on_with(self, part: Part) -> bool:
        """Whether `part` belongs to this round; what is written after calls, unless it trails them, begins another."""
        if part.get("round", self.number) != self.number:
            return False
        return not self.calls or part["type"] == "call" or part.get("kind") == "trailing"


class _Answer:
    """One stored answer, regrouped into its rounds."""

    def __init__(
        self,
        message: Message,
        calls: Iterable[ToolCall],
        files: Mapping[str, AttachedFile],
        capabilities: Capabilities,
    ) -> None:
        self._files, self._capabilities = files, capabilities
        self._parts = message.parts
        rows = {str(call.pk): call for call in calls}
        self.rounds: list[_Round] = []
        for index, part in enumerate(message.parts):
            row = rows.get(str(part.get("id"))) if part["type"] == "call" else None
            if row is None and part["type"] not in ("text", "reasoning"):
                continue
            if not self.rounds or not self.rounds[-1].goes_on_with(part):
                self.rounds.append(_Round(index, part.get("round", 1)))
            self.rounds[-1].take(part, row)
        for round in self.rounds:
            round.calls.sort(key=lambda call: call.position)

    def messages(self, rounds: Sequence[_Round]) -> list[ModelMessage]:
        messages: list[ModelMessage] = []
        for round in _joined(rounds):
            messages += round_messages(
                round.text,
                [Answered(_request(call), self._result(call), _arguments(call)) for call in round.calls],
                trailing_text=round.trailing_text,
                reasoning=round.reasoning,
                images=self._capabilities.images,
            )
        return messages

    def unfinished(self, first_part: int) -> tuple[list[ModelMessage], OpenRound | None]:
        """What a model is told of an answer that is being written, and its last round if that one has calls."""
        before = [round for round in self.rounds if round.start < first_part]
        since = [round for round in self.rounds if round.start >= first_part]
        open_round = self._open_round(since) if since and since[-1].calls else None
        told = since[:-1] if open_round is not None else since
        if not before or self._capabilities.prefill:
            return self.messages([*before, *told]), open_round
        messages = self.messages(before)
        if messages and messages[-1].role == "assistant":
            messages.append(text_message("user", GO_ON))
        return messages + self.messages(told), open_round

    def _open_round(self, rounds: Sequence[_Round]) -> OpenRound:
        *earlier, last = rounds
        failures = FailureCount()
        for round in earlier:
            if round.calls:
                failures.record((_key(call), call.status == ToolCall.Status.OK) for call in round.calls)
        return OpenRound(
            text=last.text,
            reasoning=last.reasoning,
            trailing_text=last.trailing_text,
            calls=[self._open_call(call) for call in last.calls],
            number=last.number,
            failures=failures.counts,
        )

    def _open_call(self, call: ToolCall) -> OpenCall:
        request = _request(call)
        match call.status:
            case ToolCall.Status.RUNNING:
                return OpenCall(call.pk, request, "running")
            case ToolCall.Status.PENDING | ToolCall.Status.WAITING:
                return _asked(call, request)
        return OpenCall(call.pk, request, "finished", result=self._result(call))

    def _result(self, call: ToolCall) -> ToolResult:
        match call.status:
            case ToolCall.Status.RUNNING:
                return INTERRUPTED
            case ToolCall.Status.PENDING | ToolCall.Status.WAITING:
                return UNSTARTED
        status = ToolStatus(call.status)
        artifacts = self._artifacts(call) if self._capabilities.images else ()
        return ToolResult(status, call.result_text, artifacts=artifacts, duration_ms=call.duration_ms or 0)

    def _artifacts(self, call: ToolCall) -> list[Artifact]:
        files = (self._files.get(str(attachment.pk)) for attachment in call.artifacts.all())
        return [Artifact(file.data, file.content_type, file.name) for file in files if file is not None and file.data]


def _joined(rounds: Iterable[_Round]) -> list[_Round]:
    """`rounds`, one that ended without calls joined with the one that continues it: they are one answer."""
    joined: list[_Round] = []
    for round in rounds:
        if joined and not joined[-1].calls:
            last = joined[-1]
            joined[-1] = _Round(
                last.start,
                round.number,
                last.text + round.text,
                last.reasoning + round.reasoning,
                round.trailing_text,
                round.calls,
            )
        else:
            joined.append(round)
    return joined


def _request(call: ToolCall) -> ToolRequest:
    return ToolRequest(call.provider_id, call.name, call.arguments_text, dict(call.extra))


def _arguments(call: ToolCall) -> dict[str, Any] | None:
    return call.arguments if isinstance(call.arguments, dict) else None


def _key(call: ToolCall) -> CallKey:
    arguments = _arguments(call)
    if arguments is None:
        return call.name, call.arguments_text
    return call.name, json.dumps(arguments, sort_keys=True)


def _asked(call: ToolCall, request: ToolRequest) -> OpenCall:
    """A call that has not run, from the newest of its questions."""
    questions = sorted(call.questions.all(), key=lambda question: question.created_at)
    if not questions:
        return OpenCall(call.pk, request, "pending" if call.status == ToolCall.Status.PENDING else "waiting")
    question = questions[-1]
    approved, arguments = _approval(questions)
    known: dict[str, Any] = {"approved": approved, "arguments": arguments, **_sealed(questions)}
    match question.state:
        case Question.State.OPEN:
            return OpenCall(call.pk, request, "waiting", needed=_needed(question), **known)
        case Question.State.ANSWERED:
            answer = question.answer or {}
            if (needed := _needed(question)) is not None:
                given = PersonAnswer(answer.get("action") or "cancel", answer.get("content") or {})
                return OpenCall(call.pk, request, "pending", resumed=Resumed(needed, given), **known)
            state: Literal["allowed", "denied"] = "allowed" if approved else "denied"
            return OpenCall(call.pk, request, state, note=str(answer.get("note") or ""), **known)
    return OpenCall(call.pk, request, "expired")


def _approval(questions: Sequence[Question]) -> tuple[bool, JSONObject | None]:
    """Whether a person allowed the call, and the arguments that were put in place of the model's."""
    approvals = [question for question in questions if _needed(question) is None]
    answer = approvals[-1].answer if approvals and approvals[-1].state == Question.State.ANSWERED else None
    if answer is None or not str(answer.get("decision", "")).startswith("allow"):
        return False, None
    arguments = answer.get("arguments")
    return True, arguments if isinstance(arguments, dict) else None


def _sealed(questions: Sequence[Question]) -> dict[str, Any]:
    """What the newest approval is for and who gave it; none is where it was never asked."""
    approvals = [question for question in questions if question.kind == Question.Kind.APPROVAL]
    if not approvals:
        return {}
    newest = approvals[-1]
    seal = Seal(newest.definition, newest.arguments)
    return {"seal": seal, "by": newest.answered_by_id, "again": len(approvals) > 1}


def _needed(question: Question) -> PersonNeeded | None:
    match question.kind:
        case Question.Kind.AUTHORIZATION:
            return PersonNeeded("authorization", question.details, question.kept or {})
        case Question.Kind.ELICITATION:
            return PersonNeeded("elicitation", question.details, question.kept or {})
    return None
