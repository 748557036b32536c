"""Turns as people begin, see and stop them; `transitions` holds what happens in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts import audit, policy
from accounts.actors import Actor, stand_in
from accounts.budgets import TooManyTurnsError as TooManyTurnsError
from agents.models import Agent, AgentGrant, ModelProfile
from chatui.errors import ChatUIError, InvalidRequestError, NotFoundError, TooLargeError
from chatui.prepared import PreparedQuery
from chatui.rows import writing
from conversations import chosen_model, spending, titles, transitions
from conversations.chosen_accounts import NotOfferedError, chosen_accounts
from conversations.models import Attachment, Conversation, ConversationQuerySet, Message, Question, ToolCall, Turn
from conversations.usable import own_servers

Part = dict[str, Any]


class TurnRunningError(ChatUIError):
    """The conversation's one open turn has not ended yet."""

    code = "turn_running"
    status = 409
    public_message = "The answer before this one is not finished yet."


class NotContinuableError(ChatUIError):
    """Only stopped, truncated and interrupted answers can be continued."""

    code = "not_continuable"
    status = 409
    public_message = "This answer cannot be continued."


@dataclass(frozen=True, slots=True)
class NewTurn:
    """What a client asks for. `content` holds `{"type": "text", "text"}` and `{"type": "attachment", "id"}`.

    `earlier` (OpenAI-compatible requests only) are messages that precede the question: (role, text) pairs.
    """

    request_id: UUID
    kind: Turn.Kind = Turn.Kind.START
    conversation_id: UUID | None = None
    agent: str | None = None
    parent_id: UUID | Literal["root"] | None = None
    message_id: UUID | None = None
    content: Sequence[Mapping[str, Any]] = ()
    timezone: str = ""
    tools: bool = True
    servers: Sequence[str] | None = None
    accounts: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    system: str = ""
    earlier: Sequence[tuple[str, str]] = ()
    conversation_kind: Conversation.Kind = Conversation.Kind.CHAT
    parameters: Mapping[str, Any] = field(default_factory=dict)
    process: str = ""  # whose task will run it; empty: whoever claims it


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that was begun now, or before by the same `request_id` (`repeated`)."""

    turn_id: UUID
    conversation: Conversation
    repeated: bool = False
    new_conversation: bool = False
    turn: Turn | None = None


def begin_turn(actor: Actor, new: NewTurn) -> Begun:
    """Check policy and limits, store the question and an empty answer, and open the turn; one transaction.

    Raises `NotFoundError`, `PermissionDeniedError`, `TurnRunningError`, `TooManyTurnsError`, `NotOfferedError`,
    `TooLargeError`, `InvalidRequestError`. A repeated `request_id` of the same user returns the turn it began.
    """
    policy.require(actor, policy.Action.CHAT)
    try:
        with writing():
            return _begin(actor, new)
    except (ChatUIError, IntegrityError) as error:
        # A repeated request meets what it began itself: its row, its running turn, its answer that is being continued.
        if (before := _begun_before(actor, new.request_id)) is not None:
            return before
        if isinstance(error, IntegrityError) and ("one_open_turn" in str(error) or "conversation_id" in str(error)):
            raise TurnRunningError from None
        raise


def _begun_before(actor: Actor, request_id: UUID) -> Begun | None:
    turn = (
        Turn.objects.select_related("conversation__agent")
        .filter(started_by_id=actor.user_id, request_id=request_id)
        .first()
    )
    if turn is None:
        return None
    if turn.conversation.organization_id != actor.organization_id:
        raise InvalidRequestError(public_message="This request_id was used before.")
    return Begun(turn.pk, turn.conversation, repeated=True)


def _begin(actor: Actor, new: NewTurn) -> Begun:
    now = timezone.now()
    fresh = new.conversation_id is None and new.message_id is None
    conversation = _new_conversation(actor, new) if fresh else _conversation(actor, new)
    agent = conversation.agent
    if agent is None:
        raise NotFoundError(public_message="The agent of this conversation no longer exists. Start a new chat.")
    usable_agent(actor, agent)
    opened = spending.open_turn(actor, agent.pk, tools=new.tools, hidden=new.conversation_kind is Conversation.Kind.API)
    if not fresh and Turn.objects.filter(conversation=conversation, status__in=Turn.OPEN).exists():
        raise TurnRunningError
    _check_selection(actor, agent, new)
    profile = chosen_model.choose(agent, new.model, _model_before(new))
    accounts = chosen_accounts(actor, agent, conversation, new.accounts)

    first_part, changed = 0, ["current_leaf", "active_at"]
    if accounts != conversation.accounts:
        conversation.accounts = accounts
        changed.append("accounts")
    if new.kind is Turn.Kind.START:
        parent = _parent(conversation, new)
        if new.earlier:
            parent = _earlier_messages(conversation, new.earlier)
        parts, text = _content(actor, new, conversation)
        question = Message(
            conversation=conversation, parent=parent, role=Message.Role.USER, parts=parts, search_text=text
        )
        answer = _empty_answer(conversation, question, profile)
        made = [question, answer]
        if not conversation.title:
            conversation.title = titles.from_question(text or _names(parts))
            conversation.title_source = Conversation.TitleSource.QUESTION
            changed += ["title", "title_source"]
    else:
        before = _assistant_message(conversation, new)
        assert before.parent is not None
        question = before.parent
        if new.kind is Turn.Kind.REGENERATE:
            answer = _empty_answer(conversation, question, profile)
            made = [answer]
        else:
            answer, first_part, made = _reopened(before), len(before.parts), []

    conversation.current_leaf, conversation.active_at = answer, now
    if fresh:
        conversation.save(force_insert=True)
    else:
        conversation.save(update_fields=changed)  # a title that a person gives meanwhile stays
    Message.objects.bulk_create(made)
    turn = Turn.objects.create(
        conversation=conversation,
        started_by_id=actor.user_id,
        request_id=new.request_id,
        kind=new.kind,
        agent=agent,
        user_message=question,
        message=answer,
        present=actor.present,
        options={
            "timezone": new.timezone,
            "tools": new.tools,
            "servers": list(new.servers) if new.servers is not None else None,
            "accounts": accounts,
            "system": new.system,
            "parameters": dict(new.parameters),
            "via": audit.via_of(actor),
            "key": str(actor.key_id) if actor.key_id else None,  # what it does ends with the key
            "profile": chosen_model.name_of(profile),
            **chosen_model.option_of(agent, profile),
            **({"limited": True, "warnings": opened.warnings} if opened.limited else {}),
        },
        first_part=first_part,
        rounds=max((part["round"] for part in answer.parts if "round" in part), default=0),
        process=new.process,
        heartbeat_at=now,
    )
    return Begun(turn.pk, conversation, new_conversation=fresh, turn=turn)


_grants = PreparedQuery(lambda agent: AgentGrant.objects.filter(agent_id=agent), UUID)


def usable_agent(actor: Actor, agent: Agent) -> None:
    """Raise `NotFoundError` unless `agent` is enabled and granted to the actor, from fresh rows."""
    if not agent.enabled or agent.organization_id != actor.organization_id:
        raise NotFoundError(public_message="This agent is not available.")
    verdict = policy.granted(actor, _grants(agent.pk))
    if not verdict:
        raise NotFoundError(verdict.reason, public_message="This agent is not available to you.")


_agents = PreparedQuery(
    lambda organization, slug: (
        Agent.objects.visible_to(stand_in(organization_id=organization))
        .select_related("model__endpoint")
        .filter(slug=slug)
    ),
    UUID,
    str,
)


def _new_conversation(actor: Actor, new: NewTurn) -> Conversation:
    if not new.agent:
        raise InvalidRequestError(public_message="A new chat names its agent.")
    agent = _agents.first(actor.organization_id, new.agent)
    if agent is None:
        raise NotFoundError(public_message="There is no such agent.")
    return Conversation(
        organization_id=actor.organization_id,
        owner_id=actor.user_id,
        agent=agent,
        kind=new.conversation_kind,
    )


def _whole(user: UUID, organization: UUID) -> ConversationQuerySet:
    actor = stand_in(user_id=user, organization_id=organization)
    return Conversation.objects.visible_to(actor).select_related("agent__model__endpoint")


_conversations = PreparedQuery(lambda user, organization, id: _whole(user, organization).filter(pk=id), *[UUID] * 3)
_of_message = PreparedQuery(lambda user, organization, id: _whole(user, organization).filter(messages=id), *[UUID] * 3)


def _conversation(actor: Actor, new: NewTurn) -> Conversation:
    query, id = (_of_message, new.message_id) if new.conversation_id is None else (_conversations, new.conversation_id)
    conversation: Conversation | None = None
    if id is not None:
        conversation = query.first(actor.user_id, actor.organization_id, id)
    if conversation is None:
        raise NotFoundError(public_message="There is no such conversation.")
    return conversation


def _parent(conversation: Conversation, new: NewTurn) -> Message | None:
    if new.parent_id == "root":
        return None
    wanted = new.parent_id or conversation.current_leaf_id
    if wanted is None:
        return None
    parent = conversation.messages.filter(pk=wanted).first()
    if parent is None:
        raise NotFoundError(public_message="There is no such message in this conversation.")
    if parent.role != Message.Role.ASSISTANT:
        raise InvalidRequestError(public_message="parent_id: a question follows an answer.")
    return parent


def _assistant_message(conversation: Conversation, new: NewTurn) -> Message:
    message = (
        conversation.messages.select_related("parent").filter(pk=new.message_id).first() if new.message_id else None
    )
    if message is None or message.role != Message.Role.ASSISTANT or message.parent is None:
        raise NotFoundError(public_message="There is no such answer.")
    return message


def _model_before(new: NewTurn) -> UUID | None:
    """The model, other than the agent's own, that wrote the answer which is to be continued."""
    if new.kind is not Turn.Kind.CONTINUE or new.message_id is None:
        return None
    turns = Turn.objects.filter(message_id=new.message_id).order_by("-created_at")
    options: Mapping[str, Any] | None = turns.values_list("options", flat=True).first()
    chosen = (options or {}).get("model")
    return UUID(chosen) if chosen else None


def _empty_answer(conversation: Conversation, question: Message, profile: ModelProfile) -> Message:
    return Message(
        conversation=conversation,
        parent=question,
        role=Message.Role.ASSISTANT,
        status=Message.Status.RUNNING,
        model=profile.title or profile.name,
    )


def _reopened(message: Message) -> Message:
    continuable = (Message.Status.STOPPED, Message.Status.TRUNCATED, Message.Status.INTERRUPTED)
    updated = Message.objects.filter(pk=message.pk, status__in=continuable).update(
        status=Message.Status.RUNNING, error=None
    )
    if not updated:
        raise NotContinuableError
    message.status, message.error = Message.Status.RUNNING, None
    return message


def _earlier_messages(conversation: Conversation, earlier: Sequence[tuple[str, str]]) -> Message | None:
    parent: Message | None = None
    made = []
    for role, text in earlier:
        parts = [{"type": "text", "text": text, "round": 1}] if role == Message.Role.ASSISTANT else [_text_part(text)]
        parent = Message(conversation=conversation, parent=parent, role=role, parts=parts, search_text=text)
        made.append(parent)
    Message.objects.bulk_create(made)
    return parent


def _text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def _content(actor: Actor, new: NewTurn, conversation: Conversation) -> tuple[list[Part], str]:
    parts: list[Part] = []
    texts: list[str] = []
    wanted: list[UUID] = []
    for item in new.content:
        if item["type"] == "text":
            if str(item["text"]).strip():
                parts.append(_text_part(str(item["text"])))
                texts.append(str(item["text"]))
        else:
            parts.append({"type": "attachment", "id": str(item["id"])})
            wanted.append(UUID(str(item["id"])))
    text = "\n\n".join(texts)
    if len(text.encode()) > settings.SOCKET["MAX_TEXT"]:
        raise TooLargeError(public_message="A message holds at most 1 MiB of text. Attach longer text as a file.")
    if not parts:
        raise InvalidRequestError(public_message="The message is empty.")
    if len(wanted) > 10:
        raise TooLargeError(public_message="A message has at most 10 attachments.")
    if wanted:
        mine = Attachment.objects.visible_to(actor).filter(
            Q(conversation=None) | Q(conversation=conversation), pk__in=wanted, call=None
        )
        if mine.update(conversation=conversation) != len(set(wanted)):
            raise NotFoundError(public_message="An attachment of this message does not exist (any more).")
    return parts, text


def _names(parts: Sequence[Part]) -> str:
    ids = [part["id"] for part in parts if part["type"] == "attachment"]
    return ", ".join(Attachment.objects.as_system().filter(pk__in=ids).values_list("name", flat=True))


def _check_selection(actor: Actor, agent: Agent, new: NewTurn) -> None:
    if new.agent and new.agent != agent.slug:
        raise InvalidRequestError(public_message="agent: this conversation is with another agent. Start a new chat.")
    if new.servers:
        unknown = sorted(set(new.servers) - set(agent.servers.values_list("server__slug", flat=True)))
        if unknown and agent.user_servers:
            unknown = sorted(set(unknown) - {server.slug for server in own_servers(actor)})
        if unknown:
            raise NotOfferedError(public_message=f"This agent has no server “{unknown[0][:80]}”.")


# --- Looking and stopping -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """What came of a request to stop: `ended` if it ended at once, else its owner will end it."""

    turn_id: UUID
    conversation: Conversation
    ended: transitions.Ended | None


def visible_turn(actor: Actor, turn_id: UUID) -> Turn:
    """The turn, if its conversation is the actor's. Raises `PermissionDeniedError`, `NotFoundError`."""
    policy.require(actor, policy.Action.CHAT)
    conversations = Conversation.objects.visible_to(actor)
    turn = (
        Turn.objects.select_related("conversation", "message")
        .filter(pk=turn_id, conversation__in=conversations)
        .first()
    )
    if turn is None:
        raise NotFoundError(public_message="There is no such turn.")
    return turn


def request_stop(actor: Actor, turn_id: UUID) -> Stop:
    """Mark the turn as to be stopped; end it here if it waits or its owner is gone. Ended turns stay as they are."""
    turn = visible_turn(actor, turn_id)
    Turn.objects.filter(pk=turn.pk, status__in=Turn.OPEN, stop_requested_at=None).update(
        stop_requested_at=timezone.now()
    )
    ended = transitions.end(turn.pk, Message.Status.STOPPED, None, leaving=Message.Status.WAITING)
    if ended is None and turn.heartbeat_at is not None and turn.heartbeat_at < transitions.stale_before():
        ended = transitions.end(turn.pk, Message.Status.STOPPED, None)
    return Stop(turn.pk, turn.conversation, ended)


def open_turns(actor: Actor) -> list[Any]:
    """The actor's turns that have not ended, for `hello`; `asks` tells whether a running call of it asks its person."""
    conversations = Conversation.objects.visible_to(actor)
    asked = Question.objects.as_system().filter(
        turn=OuterRef("pk"),
        state=Question.State.OPEN,
        kind=Question.Kind.ELICITATION,
        call__status=ToolCall.Status.RUNNING,
    )
    found = Turn.objects.filter(conversation__in=conversations, status__in=Turn.OPEN).order_by("created_at")
    return list(found.annotate(asks=Exists(asked)))
