"""What the socket's frames mean, as row work: each takes an actor from fresh rows and returns values."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from accounts import policy
from accounts.actors import Actor
from chatui.errors import NotFoundError
from conversations import questions, turns, wire
from conversations.decisions import Decision
from conversations.models import Conversation, ToolCall, Turn
from conversations.representations import conversation_json, one_message_json
from conversations.turns import Begun, NewTurn


@dataclass(frozen=True, slots=True)
class Greeting:
    user_id: UUID
    organization_id: UUID
    chats: bool  # may the actor see them?
    frame: str


def greet(actor: Actor) -> Greeting:
    """The `hello` frame: who this is, where, and what has not ended yet."""
    chats = bool(policy.allows(actor, policy.Action.CHAT))
    open_turns = [
        {
            "turn_id": turn.pk,
            "conversation_id": turn.conversation_id,
            "status": Turn.Status.WAITING if turn.asks else turn.status,
            "seq": turn.last_seq,
        }
        for turn in (turns.open_turns(actor) if chats else ())
    ]
    user = {"id": actor.user_id, "username": actor.username, "name": actor.name}
    organization = {"id": actor.organization_id, "slug": actor.organization_slug, "role": actor.role}
    hello = wire.frame("hello", protocol=wire.PROTOCOL, user=user, organization=organization, turns=open_turns)
    return Greeting(actor.user_id, actor.organization_id, chats, hello)


def new_turn(frame: wire.TurnStart | wire.TurnRegenerate | wire.TurnContinue) -> NewTurn:
    match frame:
        case wire.TurnStart():
            return NewTurn(
                request_id=frame.request_id,
                conversation_id=frame.conversation_id,
                agent=frame.agent,
                parent_id=frame.parent_id,
                content=[item.model_dump() for item in frame.content],
                timezone=frame.timezone,
                tools=frame.tools,
                servers=frame.servers,
                accounts=frame.accounts,
                conversation_kind=Conversation.Kind.TEMPORARY if frame.temporary else Conversation.Kind.CHAT,
            )
        case wire.TurnRegenerate():
            kind, model = Turn.Kind.REGENERATE, frame.model
        case wire.TurnContinue():
            kind, model = Turn.Kind.CONTINUE, None
    return NewTurn(
        request_id=frame.request_id, kind=kind, message_id=frame.message_id, model=model, timezone=frame.timezone
    )


def started_frame(begun: Begun) -> wire.TurnStarted:
    turn = begun.turn
    assert turn is not None
    assert turn.agent is not None
    return wire.TurnStarted(
        request_id=turn.request_id,
        conversation_id=begun.conversation.pk,
        user_message_id=turn.user_message_id,
        message_id=turn.message_id,
        agent=turn.agent.slug,
        model=turn.message.model,
    )


def conversation_updated(conversation: Conversation) -> str:
    """What a conversation is called and where it stands; of its turn `turn.changed` tells."""
    body = conversation_json(conversation)
    del body["turn"]
    return wire.frame("conversation.updated", conversation_id=body.pop("id"), **body)


def decide(actor: Actor, frame: wire.CallDecide) -> questions.Answered:
    """Answer an approval: what the question does not offer is an error, never a weaker form."""
    decision = Decision(frame.decision, frame.scope, frame.arguments, frame.note)
    return questions.decide(actor, decision, call_id=frame.call_id, question_id=frame.question_id)


def elicited(actor: Actor, frame: wire.ElicitationAnswer) -> questions.Answered:
    """Answer what a server asks."""
    return questions.elicited(actor, frame.elicitation_id, frame.action, frame.content)


def turn_of_call(actor: Actor, call_id: UUID) -> UUID:
    """The turn of a call in one of the actor's conversations. Raises `NotFoundError`."""
    policy.require(actor, policy.Action.CHAT)
    conversations = Conversation.objects.visible_to(actor)
    turn_id = (
        ToolCall.objects.filter(pk=call_id, turn__conversation__in=conversations)
        .values_list("turn_id", flat=True)
        .first()
    )
    if turn_id is None:
        raise NotFoundError(public_message="There is no such call.")
    return turn_id


@dataclass(frozen=True, slots=True)
class Snapshot:
    frame: str
    seq: int
    open: bool


def snapshot(actor: Actor, turn_id: UUID) -> Snapshot:
    """A turn as it stands in the database, where its frames are not held."""
    turn = turns.visible_turn(actor, turn_id)
    frame = wire.frame(
        "turn.snapshot",
        turn_id=turn.pk,
        seq=turn.last_seq,
        conversation_id=turn.conversation_id,
        status=turn.status,
        message=one_message_json(turn.message),
    )
    return Snapshot(frame, turn.last_seq, turn.status in Turn.OPEN)


def news(actor: Actor, turn_id: UUID, seq: int) -> Snapshot | None:
    """How the turn stands, unless it is open and as it was at `seq`: then one query, and None."""
    policy.require(actor, policy.Action.CHAT)
    mine = Turn.objects.filter(conversation__in=Conversation.objects.visible_to(actor))
    if mine.filter(pk=turn_id, last_seq=seq, status__in=Turn.OPEN).exists():
        return None
    return snapshot(actor, turn_id)
