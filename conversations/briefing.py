"""What a model is told at the start of a turn, from the turn's plan and toolbox; and how much the turn may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.utils import timezone

from agents.context import can_read_on, reserved_tokens
from agents.events import Noticed
from agents.loop import Limits
from agents.own_tools import TurnToolbox
from agents.parts import ImageContent, ModelMessage, TextContent
from agents.prompts import system_prompt
from agents.providers.chat_model import ChatModel
from conversations import history
from conversations.models import Turn
from conversations.plans import TurnPlan
from mcpservers.credentials import SignIn
from mcpservers.offers import ServerProblem

# What the person can do something about: a notice of its own, whose detail is the server's slug.
FOR_THE_PERSON: Mapping[str, str] = {"needs_sign_in": "needs_sign_in", "not_ready": "needs_setup"}


@dataclass(frozen=True, slots=True)
class Briefing:
    """`messages` for the model, the round that a resumed turn goes on with, and what a person should know first.

    `images` are the user's, by the names that arguments may use; `sign_ins` are for servers that list nothing before.
    """

    messages: Sequence[ModelMessage]
    open_round: history.OpenRound | None
    notices: Sequence[Noticed]
    images: Mapping[str, ImageContent]
    sign_ins: Sequence[SignIn] = ()


def briefing(plan: TurnPlan, model: ChatModel, toolbox: TurnToolbox) -> Briefing:
    """Pure: no query, no network."""
    options = plan.turn.options
    offered = toolbox.specs() if model.capabilities.tools and options.get("tools", True) else ()
    prompt = system_prompt(
        plan.agent.instructions,
        servers=toolbox.instructions,
        offered=bool(offered),
        timezone=str(options.get("timezone") or ""),
        now=timezone.now(),
        extra_system=str(options.get("system") or ""),
    )
    past = history.model_messages(
        plan.path,
        plan.calls,
        capabilities=model.capabilities,
        attachments=plan.attachments,
        continuing=plan.turn.kind == Turn.Kind.CONTINUE,
        first_part=plan.turn.first_part,
        reserved=reserved_tokens(prompt, offered),
        readable=can_read_on(offered),
    )
    system = [ModelMessage("system", (TextContent(prompt),))] if prompt else []
    notices = [*problem_notices(plan, toolbox), *past.notices]
    return Briefing([*system, *past.messages], past.open_round, notices, past.images, _sign_ins(plan, toolbox))


def _sign_ins(plan: TurnPlan, toolbox: TurnToolbox) -> list[SignIn]:
    """Shown once a turn, where somebody is present; the turn goes on without these servers."""
    if plan.turn.rounds > 0 or not plan.turn.present:
        return []
    return [problem.sign_in for problem in toolbox.problems if problem.sign_in is not None]


def problem_notices(plan: TurnPlan, toolbox: TurnToolbox) -> list[Noticed]:
    """Which servers offer nothing, and why, once a turn, before the model is called."""
    if not toolbox.problems or plan.turn.rounds > 0:
        return []
    mine = [
        Noticed(FOR_THE_PERSON[problem.code], _named(problem), problem.slug)
        for problem in toolbox.problems
        if problem.code in FOR_THE_PERSON
    ]
    rest = [problem for problem in toolbox.problems if problem.code not in FOR_THE_PERSON]
    if not rest:
        return mine
    detail = "\n".join(f"{problem.title}: {problem.message}" for problem in rest)
    names = ", ".join(problem.title for problem in rest)
    some = "Some tools are unavailable" if toolbox.offered else "No tools are available"
    return [*mine, Noticed("tools_unavailable", f"{some}: {names}.", detail)]


def _named(problem: ServerProblem) -> str:
    """What keeps a server from this answer, which goes on without it."""
    named = problem.title in problem.message
    return problem.message if named else f"{problem.title}: {problem.message}"


def limits(plan: TurnPlan) -> Limits:
    """What the turn may do. Rounds of the message's earlier turns (it is continued) are no part of it."""
    earlier = [part["round"] for part in plan.turn.message.parts[: plan.turn.first_part] if "round" in part]
    return Limits(
        max_rounds=(plan.agent.max_rounds or settings.AGENT_MAX_ROUNDS) + max(earlier, default=0),
        max_calls=settings.TURN["MAX_CALLS"],
        max_seconds=settings.TURN["MAX_SECONDS"],
        max_parallel_calls=settings.TURN["MAX_PARALLEL_CALLS"],
    )
