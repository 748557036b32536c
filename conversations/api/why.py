"""Why one can, or cannot, use a tool: about oneself alone."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse, JsonResponse

from accounts import policy
from accounts.actors import Actor
from accounts.models import User
from agents.models import Agent
from chatui.errors import InvalidRequestError, NotFoundError
from conversations.api.door import Call
from conversations.explaining import explain
from mcpservers.giving import reaches
from mcpservers.models import MCPServer


async def read(call: Call, server: str) -> HttpResponse:
    """`?tool=` is the server's own name of it; `?agent=` the agent that it is to be used with."""
    tool, agent = call.request.GET.get("tool", ""), call.request.GET.get("agent", "")
    if not tool or len(tool) > 200:
        raise InvalidRequestError(public_message="tool: say which tool of the server is meant.")
    return JsonResponse(await call.rows(explanation, server, tool, agent))


def explanation(actor: Actor, slug: str, tool: str, agent_slug: str) -> dict[str, Any]:
    """The chain of verdicts. A server that is nothing to the actor does not exist. Raises `NotFoundError`."""
    server = MCPServer.objects.visible_to(actor).prefetch_related("grants").filter(slug=slug).first()
    agent = None
    if agent_slug:
        agents = Agent.objects.visible_to(actor).prefetch_related("grants").filter(slug=agent_slug)
        agent = next((each for each in agents if policy.granted(actor, each.grants.all())), None)
        if agent is None:
            raise NotFoundError(public_message="There is no such agent.")
    used = agent is not None and server is not None and agent.servers.filter(server=server).exists()
    if server is None or not (used or reaches(actor, server, server.grants.all())):
        raise NotFoundError(public_message="There is no such server.")
    found = explain(User.objects.get(pk=actor.user_id), server, tool, agent)
    steps = [{"subject": step.subject, "answer": step.answer, "reason": step.reason} for step in found.steps]
    return {"answer": found.answer, "summary": found.summary, "steps": steps}
