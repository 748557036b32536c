"""The toolbox of a turn: the tools of the agent's servers, and our own for this conversation."""

from __future__ import annotations

from agents.mcp_toolbox import open_toolbox
from agents.own_tools import TurnToolbox
from agents.read_result import ReadResult
from conversations.models import ToolCall
from conversations.plans import TurnPlan
from conversations.stored_results import StoredTexts
from mcpservers.requests import RequestContext


async def open_turn_toolbox(plan: TurnPlan) -> TurnToolbox:
    """What the turn of `plan` may use. Raises `NotOfferedError`; never for a server."""
    turn, options = plan.turn, plan.turn.options
    mcp = await open_toolbox(
        plan.actor,
        plan.agent.pk,
        servers=options.get("servers") if options.get("tools", True) else (),
        dialect=plan.model.dialect,
        turn_id=turn.pk,
        images=plan.model.images,
        present=turn.present,
        request=RequestContext(turn.pk, turn.conversation_id, turn.message_id),
    )
    told = [call.result_text for call in earlier_calls(plan)]
    texts = StoredTexts(plan.actor, turn.conversation_id)
    return TurnToolbox(mcp, [ReadResult(texts, plan.model.context, told)])


def earlier_calls(plan: TurnPlan) -> list[ToolCall]:
    """The calls of the path, oldest first."""
    return [call for message in plan.path for call in plan.calls.get(message.pk, ())]
