"""The toolbox of a turn: the tools of the agent's servers, and our own for this conversation."""

from __future__ import annotations

from collections.abc import Sequence

from agents.mcp_toolbox import MCPToolbox, open_toolbox
from agents.own_tools import OwnTool, TurnToolbox
from agents.read_result import ReadResult
from agents.tool_search import Deferral, EarlierCall, Room, SearchTools, recall, tokens_of
from chatui.rows import in_rows
from conversations.models import ToolCall
from conversations.plans import TurnPlan
from conversations.standing import always_of
from conversations.stored_results import StoredTexts
from conversations.tool_uses import tool_uses
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
        accounts=options.get("accounts") or {},
        always=always_of(plan.actor.user_id, turn.conversation_id, plan.agent.pk),
        before=turn.offered,
    )
    try:
        return await _completed(plan, mcp)
    except BaseException:
        await mcp.aclose()
        raise


async def _completed(plan: TurnPlan, mcp: MCPToolbox) -> TurnToolbox:
    """With our own tools."""
    calls = [call for message in plan.path for call in plan.calls.get(message.pk, ())]
    texts = StoredTexts(plan.actor, plan.turn.conversation_id)
    own: list[OwnTool] = [ReadResult(texts, plan.model.context, [call.result_text for call in calls])]
    deferral = await _deferral(plan, mcp, calls)
    if deferral is not None:
        own.insert(0, SearchTools(mcp.offer.tools, deferral))
    return TurnToolbox(mcp, own, deferral)


async def _deferral(plan: TurnPlan, mcp: MCPToolbox, calls: Sequence[ToolCall]) -> Deferral | None:
    """What is offered of more tools than there is room for; None where there is room for all."""
    room = Room.of(plan.model.context)
    sizes = {tool.exposed_name: tokens_of(tool) for tool in mcp.offer.tools}
    if room.is_enough_for(sizes):
        return None
    deferral = Deferral(sizes, room, await in_rows(tool_uses, plan.agent.pk))
    recall(deferral, (EarlierCall(call.name, call.result_text) for call in calls))
    return deferral
