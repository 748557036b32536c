"""The admin's first page: how much there is of everything, and what would keep it from being used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.models import Membership
from accounts.tenant_admin import reach_of
from agents.models import Agent, AgentGrant, ModelEndpoint, ModelProfile
from conversations.models import Conversation
from mcpservers.models import MCPServer, ServerGrant

SHOWN = 20  # hints


@dataclass(frozen=True, slots=True)
class Card:
    title: str
    number: int
    link: str
    add: str  # empty where nobody adds


@dataclass(frozen=True, slots=True)
class Hint:
    """One thing to look at. `text` is ours but for an error, which may quote a server."""

    name: str
    link: str
    text: str


def overview(request: HttpRequest, site: Any) -> dict[str, Any]:
    """`{cards, hints}` for the organizations that the person sees; a constant number of queries."""
    return {"cards": list(_cards(request, site)), "hints": list(_hints(request, site))[:SHOWN]}


def _cards(request: HttpRequest, site: Any) -> Iterator[Card]:
    may_add = reach_of(request).manages()
    for model, title in (
        (ModelEndpoint, _("Model endpoints")),
        (MCPServer, _("MCP servers")),
        (Agent, _("Agents")),
        (Membership, _("Members")),
        (Conversation, _("Conversations")),
    ):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        add = reverse(f"{name}_add") if may_add and model is not Conversation else ""
        yield Card(title, _rows(request, site, model).count(), reverse(f"{name}_changelist"), add)


def _rows(request: HttpRequest, site: Any, model: Any) -> Any:
    return site.get_model_admin(model).get_queryset(request).order_by()


def _hints(request: HttpRequest, site: Any) -> Iterator[Hint]:
    granted = Exists(AgentGrant.objects.filter(agent=OuterRef("pk"), deny=False))
    for agent in _rows(request, site, Agent).filter(~granted, enabled=True)[:SHOWN]:
        yield _hint(agent, _("Nobody may use this agent: it has no grant."))
    usable = Exists(ServerGrant.objects.filter(server=OuterRef("pk"), deny=False))
    for server in _rows(request, site, MCPServer).filter(enabled=True).annotate(usable=usable)[:SHOWN]:
        if server.last_error:
            yield _hint(server, _("The last connection failed: %(error)s") % {"error": server.last_error[:300]})
        if not server.usable:
            yield _hint(server, _("Nobody may use this server: it has no grant."))
    models = Exists(ModelProfile.objects.as_system().filter(endpoint=OuterRef("pk")))
    for endpoint in _rows(request, site, ModelEndpoint).filter(~models, enabled=True)[:SHOWN]:
        yield _hint(endpoint, _("This endpoint has no model, so no agent can use it."))


def _hint(row: Any, text: str) -> Hint:
    return Hint(str(row), reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk]), text)
