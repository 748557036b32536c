"""What a person may decide about a call that asks: which forms a question takes, and what its answer says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from accounts.actors import Actor
from agents.arguments import check_arguments
from chatui.errors import ChatUIError, InvalidRequestError
from chatui.text import clean, clean_json
from conversations.models import Question, StandingApproval


class NotSupportedError(ChatUIError):
    """A form of answer that this server does not offer for this question."""

    code = "not_supported"
    public_message = "This kind of decision is not possible here."


class ArgumentsRefusedError(InvalidRequestError):
    """Changed arguments that the tool would not take; the question stays open."""

    code = "invalid_arguments"
    public_message = "These arguments do not fit the tool."


@dataclass(frozen=True, slots=True)
class Decision:
    """`scope` goes with `allow_always` alone; `arguments`, where set, replace the model's; `note` is for the model."""

    decision: Literal["allow_once", "allow_always", "deny"]
    scope: str | None = None
    arguments: dict[str, Any] | None = None
    note: str = ""

    @property
    def allows(self) -> bool:
        return self.decision != "deny"


def answer_of(actor: Actor, question: Question, decision: Decision) -> dict[str, Any]:
    """The answer to an approval as it is stored. `question.turn` and `question.call` are loaded.

    Raises `NotSupportedError` for what the question does not offer, `InvalidRequestError` for what makes no sense.
    """
    answer: dict[str, Any] = {"decision": decision.decision, "note": clean(decision.note)}
    if decision.decision == "allow_always":
        _require_memory(actor, question, decision.scope)
        answer["scope"] = decision.scope
    if decision.allows and decision.arguments is not None:
        answer["arguments"] = _changed(question, decision.arguments)
    return answer


def can_remember(actor: Actor, question: Question) -> bool:
    """Whether *Always allow* is this person's to give: only for one's own turns, and where the rules let one."""
    details: dict[str, Any] = question.details
    return bool(details.get("can_remember")) and question.asked_of_id == actor.user_id


def _require_memory(actor: Actor, question: Question, scope: str | None) -> None:
    if question.asked_of_id != actor.user_id:
        raise NotSupportedError(public_message="Only the person whose call it is can allow it for good.")
    if not can_remember(actor, question) or question.call is None or question.call.server_id is None:
        raise NotSupportedError(public_message="A rule wants this tool to be asked about each time: allow it once.")
    if scope not in StandingApproval.Scope.values:
        raise InvalidRequestError(public_message="scope: say how far it goes: “conversation”, “agent” or “always”.")
    if scope == StandingApproval.Scope.AGENT and question.turn.agent_id is None:
        raise NotSupportedError(public_message="The agent of this call no longer exists.")


def _changed(question: Question, arguments: dict[str, Any]) -> dict[str, Any]:
    if not question.details.get("can_edit"):
        raise NotSupportedError(public_message="The arguments of this call cannot be changed.")
    changed: dict[str, Any] = clean_json(arguments)
    problem = check_arguments(changed, (question.kept or {}).get("schema") or {})
    if problem:
        raise ArgumentsRefusedError(public_message=f"These arguments do not fit the tool: {problem}")
    return changed
