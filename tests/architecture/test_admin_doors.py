"""The admin's own pages × everybody, and ids of others guessed in every place where one may be named.

Lists and forms are walked by `tests/accounts/test_tenant_admin.py`, every one that there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.admin import site
from django.db import models
from django.test import Client
from django.urls import reverse

from accounts.models import AuditRecord, Role
from agents.models import Agent, ModelEndpoint
from agents.providers.endpoints import EndpointReport
from mcpservers import peers
from mcpservers.connections import ConnectionInfo
from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, MCPServer, ToolVersion
from mcpservers.offers import RefreshReport
from mcpservers.scope import Scope
from tests.architecture.test_doors import addresses
from tests.fakes.admin_world import World

pytestmark = pytest.mark.django_db

MANAGES = ("admin", "owner", "superuser")
SEES = ("auditor", *MANAGES)
READS = ("auditor", "owner")
# Those of another organization, and what they are there: where an address names no row, they come in as that.
AT_HOME = {"stranger": "owner", "foreign admin": "admin", "foreign auditor": "auditor"}
CONNECTION = "a live connection"


@dataclass(frozen=True)
class Page:
    """Who may, with which method, of a row of which model (None: of none).

    `other`: who may with the other method of GET and POST; if it is not said, a page is the same for both, and a button
    is for POST alone.
    """

    may: tuple[str, ...]
    method: str = "GET"
    of: type[models.Model] | str | None = None
    other: tuple[str, ...] | None = None

    def lets_in(self, caller: str, method: str) -> bool:
        who = AT_HOME.get(caller, caller) if self.of is None else caller
        if method == self.method:
            return who in self.may
        return who in (self.other if self.other is not None else self.may if self.method == "GET" else ())


ADMIN: dict[str, Page] = {
    "index": Page(SEES),
    "app_list": Page(SEES),
    "search": Page(SEES),
    "autocomplete": Page(SEES, other=()),  # what of it: see `test_autocompletion_offers_only_one_s_own`
    "connections": Page(SEES),
    "connections_close": Page(MANAGES, "POST", CONNECTION),
    "why": Page(SEES),
    "preview": Page(SEES),
    "accounts_auditrecord_contents": Page(READS, "POST", AuditRecord),
    "accounts_auditrecord_export": Page((*READS, "superuser"), "POST"),
    "agents_modelendpoint_test": Page(MANAGES, "POST", ModelEndpoint),
    "mcpservers_mcpserver_discover": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_health": Page(SEES, "GET", MCPServer),
    "mcpservers_mcpserver_log": Page(("superuser",), "GET", MCPServer),
    "mcpservers_mcpserver_oauth": Page(SEES, "GET", MCPServer),
    "mcpservers_mcpserver_pins": Page(SEES, "GET", MCPServer),
    "mcpservers_mcpserver_pins_decide": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_reconnect": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_refresh": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_revoke": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_test": Page(MANAGES, "POST", MCPServer),
    "mcpservers_mcpserver_try": Page(MANAGES, "GET", MCPServer),
}
OPEN = {
    "login": "it leads to the ordinary sign-in",
    "logout": "anybody may leave",
    "password_change": "it leads to one's own",
    "password_change_done": "a page of words",
    "jsi18n": "words",
    "view_on_site": "no model has an address of its own",
}
THEME = {"toggle_sidebar"}  # of some versions: how the admin looks to oneself


def test_the_addresses_of_the_admin_are_lists_and_forms_or_expected_here() -> None:
    usual = {
        f"{model._meta.app_label}_{model._meta.model_name}_{page}"
        for model in site._registry
        for page in ("changelist", "add", "change", "delete", "history")
    }
    names = {pattern.name for address, pattern in addresses() if address.startswith("admin/") and pattern.name}
    assert names - usual - THEME == set(ADMIN) | set(OPEN)
    nameless = {address for address, pattern in addresses() if address.startswith("admin/") and not pattern.name}
    # Django's own: an old address of a row leads to its form, and what there is not leads nowhere.
    rows = {f"admin/{model._meta.app_label}/{model._meta.model_name}/<path:object_id>/" for model in site._registry}
    assert nameless - rows == {"admin/(?P<url>.*)$"}


def clients_of(world: World) -> dict[str, Client]:
    """Those of Acme, some of Globex, and who is none of either."""
    users = {str(role): user for role, user in world.acme.people.items()}
    users |= {name: world.globex.people[Role(role)] for name, role in AT_HOME.items()} | {"superuser": world.root}
    clients = {"nobody": Client()}
    for name, user in users.items():
        clients[name] = Client()
        clients[name].force_login(user)
    return clients


@pytest.fixture
def closed(world: World, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Acme has a live connection, and no button asks a server for anything. What was closed."""
    server, closed = world.acme[MCPServer], list[UUID]()
    live = ConnectionInfo(
        uuid4(), server.organization_id, server.pk, server.slug, server.title, Scope.APP, None, "sse", "2024-11-05",
        1.0, 0.0, 0, "ready", "",
    )  # fmt: skip

    async def refreshed(*_: Any, **__: Any) -> RefreshReport:
        return RefreshReport(error="It is not there.")

    async def undiscovered(*_: Any, **__: Any) -> None:
        raise LinkError("unreachable", "It is not there.")

    async def asked(*_: Any) -> EndpointReport:
        return EndpointReport("http://127.0.0.1:9/v1")

    monkeypatch.setattr(peers, "everywhere", lambda: peers.Told((live,)))
    monkeypatch.setattr(peers, "close_connection", closed.append)
    monkeypatch.setattr(peers, "reconnect", closed.append)
    monkeypatch.setattr("mcpservers.catalogue.refresh", refreshed)
    monkeypatch.setattr("mcpservers.oauth.discovery.discover", undiscovered)
    monkeypatch.setattr("agents.admin.test_endpoint", asked)
    return closed


def knock(client: Client, method: str, name: str, page: Page, world: World) -> Any:
    arguments: list[Any] = ["mcpservers"] if name == "app_list" else []
    if isinstance(page.of, type):
        arguments = [world.acme[page.of].pk]
    query: dict[str, str] = {}
    if name == "autocomplete":
        query = {"app_label": "accounts", "model_name": "membership", "field_name": "user"}
    elif page.of == CONNECTION:
        query = {"connection": str(peers.everywhere().connections[0].id)}
    return (client.get if method == "GET" else client.post)(reverse(f"admin:{name}", args=arguments), query)


def test_the_pages_of_the_admin(world: World, closed: list[UUID]) -> None:
    wrong, cells = [], Counter[str]()
    for caller, client in clients_of(world).items():
        for name, page in ADMIN.items():
            for method in ("GET", "POST"):
                recorded, done = AuditRecord.objects.as_system().count(), len(closed)
                response = knock(client, method, name, page, world)
                leads_to = response.get("Location", "")
                came_in = response.status_code < 400 and leads_to != reverse("admin:index") and "login" not in leads_to
                cells[caller] += 1
                if came_in != page.lets_in(caller, method):
                    wrong.append((caller, method, name, response.status_code, leads_to))
                if not came_in:
                    assert b"canary" not in response.content.lower()
                    assert (AuditRecord.objects.as_system().count(), len(closed)) == (recorded, done), (caller, name)
                elif caller in AT_HOME and not response.streaming:
                    assert b"acme" not in response.content.lower(), (caller, method, name)
    assert not wrong
    assert closed, "those who may did close it"
    assert set(cells.values()) == {2 * len(ADMIN)}


def guesses(world: World) -> dict[str, str]:
    """What somebody of Globex might write into an address to see something of Acme."""
    acme = world.acme
    return {
        "organization": str(acme.organization.pk),
        "user": str(acme.people[Role.MEMBER].pk),
        "server": str(acme[MCPServer].pk),
        "agent": str(acme[Agent].pk),
        "tool": "look",
        "s": "acme",
        "extended": "1",
    }


@pytest.mark.parametrize("caller", AT_HOME)
def test_pages_without_a_row_show_ones_own(world: World, closed: list[UUID], caller: str) -> None:
    client, guessed = clients_of(world)[caller], guesses(world)
    for name in ("index", "search", "connections", "why", "preview"):
        for query in ({}, guessed):
            page = client.get(reverse(f"admin:{name}"), query)
            assert page.status_code == 200, name
            shown = page.content.decode().replace("s=acme", "").lower()
            assert "acme-" not in shown, name
            assert "acme server" not in shown, name
            assert "acme agent" not in shown, name


@pytest.mark.parametrize("name", ["why", "preview"])
def test_one_guessed_id_among_ones_own_explains_nothing(world: World, name: str) -> None:
    client, guessed, globex = clients_of(world)["stranger"], guesses(world), world.globex
    own = {
        "organization": str(globex.organization.pk),
        "user": str(globex.people[Role.MEMBER].pk),
        "server": str(globex[MCPServer].pk),
        "agent": str(globex[Agent].pk),
        "tool": "look",
    }
    shown = "explanation" if name == "why" else "preview"
    address = reverse(f"admin:{name}")
    assert client.get(address, own).context[shown]
    for field in ("organization", "user", "agent") + (("server",) if name == "why" else ()):
        page = client.get(address, own | {field: guessed[field]})
        assert not page.context[shown], field
        assert "acme-" not in page.content.decode(), field


def test_what_hangs_on_a_row_is_not_reached_through_another(world: World) -> None:
    """An owner of Globex names Acme's version of a tool, and an account there, at a server of Globex."""
    client, server = clients_of(world)["stranger"], world.acme[MCPServer]
    version = ToolVersion.objects.create(server=server, tool="look", hash="h" * 64, definition={"name": "look"})
    account = LinkedAccount.objects.create(
        organization=server.organization,
        server=server,
        user=world.acme.people[Role.MEMBER],
        binding=server.oauth_binding(),
        issuer="https://login.example",
        name="ada",
    )
    mine = [world.globex[MCPServer].pk]
    for data in ({"do": f"accept:{version.pk}"}, {"do": "reject", "version": str(version.pk)}):
        client.post(reverse("admin:mcpservers_mcpserver_pins_decide", args=mine), data)
    client.post(reverse("admin:mcpservers_mcpserver_revoke", args=mine), {"account": str(account.pk)})
    version.refresh_from_db()
    assert version.decision == ""
    assert LinkedAccount.objects.as_system().filter(pk=account.pk).exists()


def test_the_connection_that_closes_is_the_one_that_was_named(world: World, closed: list[UUID]) -> None:
    clients, address = clients_of(world), reverse("admin:connections_close")
    (live,) = peers.everywhere().connections
    for caller in ("stranger", "foreign admin", "auditor"):
        assert clients[caller].post(address, {"connection": str(live.id)}).status_code == 404, caller
    for wanted in (str(uuid4()), "nonsense", ""):
        assert clients["admin"].post(address, {"connection": wanted}).status_code == 404
    clients["admin"].post(address, {"connection": str(live.id)})
    assert closed == [live.id]


def test_a_character_that_no_database_takes_is_looked_for_without_a_fault(world: World) -> None:
    client = clients_of(world)["superuser"]
    lists = [reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") for model in site._registry]
    pins = reverse("admin:mcpservers_mcpserver_pins", args=[world.acme[MCPServer].pk])
    for page in [*lists, pins]:
        assert client.get(page, {"q": "a\0"}).status_code == 200, page
    assert client.get(reverse("admin:search"), {"s": "a\0"}).status_code == 200
    why = reverse("admin:why")
    assert client.get(why, dict.fromkeys(guesses(world), "a\0")).status_code == 200
