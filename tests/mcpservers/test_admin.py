"""MCP servers in the admin: what cannot work is refused by its field, secrets are only written, buttons connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import AsyncClient, Client
from django.urls import reverse

from accounts.models import Role
from chatui.rows import in_rows
from mcpservers import connections
from mcpservers.connections import ConnectionInfo
from mcpservers.fetching import system_actor
from mcpservers.models import CatalogueEntry, MCPServer, ServerGrant, UserVariables
from mcpservers.transports import target_of
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import CANARY, World, post_data

STORED = {"Authorization": f"Bearer {CANARY}-header"}


def change(client: Client, server: MCPServer, **values: Any) -> Any:
    address = url(MCPServer, "change", server)
    answer = client.post(address, post_data(client.get(address)) | values)
    server.refresh_from_db()
    return answer


def add(client: Client, **values: Any) -> Any:
    given = {"title": "New", "slug": "new", "url": "https://mcp.example.org/mcp"} | values
    return client.post(url(MCPServer, "add"), post_data(client.get(url(MCPServer, "add"))) | given)


def errors(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


def said(answer: Any) -> str:
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))


@pytest.mark.django_db
class TestSecrets:
    def test_saving_again_keeps_them(self, world: World) -> None:
        server = world.acme[MCPServer]
        assert change(client_of(world.acme.people[Role.OWNER]), server, title="Renamed").status_code == 302
        assert (server.title, server.headers) == ("Renamed", STORED)
        assert server.oauth["client_secret"] == f"{CANARY}-oauth"

    def test_one_is_replaced_one_added_one_removed(self, world: World) -> None:
        client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
        change(client, server, **{"headers-0-value": "Bearer new", "headers-1-name": "X-More", "headers-1-value": "m"})
        assert server.headers == {"Authorization": "Bearer new", "X-More": "m"}
        change(client, server, **{"headers-0-remove": "on"})
        assert server.headers == {"X-More": "m"}

    def test_a_new_name_without_a_value_and_a_name_twice_are_refused(self, world: World) -> None:
        client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
        assert "headers" in errors(change(client, server, **{"headers-1-name": "X-More"}))
        twice = {"headers-1-name": "Authorization", "headers-1-value": "x"}
        assert "headers" in errors(change(client, server, **twice))

    def test_a_new_address_drops_what_was_stored_for_the_old_one_and_says_so(self, world: World) -> None:
        client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
        answer = change(client, server, url="https://elsewhere.example.org/mcp")
        assert server.headers == {}
        assert server.oauth is None
        assert not UserVariables.objects.filter(server=server).exists()
        assert "Authorization, OAuth" in said(answer)
        assert "1 users" in said(answer)
        assert CANARY not in said(answer)

    def test_what_is_entered_together_with_the_new_address_is_kept(self, world: World) -> None:
        client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
        change(client, server, url="https://elsewhere.example.org/mcp", **{"headers-0-value": "Bearer again"})
        assert server.headers == {"Authorization": "Bearer again"}

    def test_another_transport_is_another_address(self, world: World) -> None:
        server = world.acme[MCPServer]
        change(client_of(world.acme.people[Role.OWNER]), server, transport="sse")
        assert (server.transport, server.headers) == ("sse", {})

    def test_the_revision_moves_with_the_definition_and_the_rules_only(self, world: World) -> None:
        client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
        change(client, server, description="words")
        assert server.revision == 1
        change(client, server, **{"rules-0-do": "deny"})
        change(client, server, **{"headers-0-value": "new"})
        assert server.revision == 3


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({"url": ""}, "url"),
    "another scheme": ({"url": "ftp://x.example/mcp"}, "url"),
    "no host": ({"url": "https:///mcp"}, "url"),
    "a password in the address": ({"url": "https://u:p@x.example/mcp"}, "url"),
    "a placeholder in the host": ({"url": "https://{{user.name}}.example/mcp"}, "url"),
    "a space in the address": ({"url": "https://x.example/a b"}, "url"),
    "a backslash in the address": ({"url": "https://good.example\\@evil.example/"}, "url"),
    "a port that is none": ({"url": "https://x.example:99999/"}, "url"),
    "a command without a process": ({"command": "python"}, "command"),
    "an environment without a process": ({"env-0-name": "A", "env-0-value": "b"}, "env"),
    "a header that is no name": ({"headers-0-name": "X Y", "headers-0-value": "b"}, "headers"),
    "an unknown placeholder": ({"headers-0-name": "X", "headers-0-value": "{{NOBODY}}"}, "headers"),
    "the operator's environment": ({"headers-0-name": "X", "headers-0-value": "${SECRET_KEY}"}, "headers"),
    "a variable that is no name": ({"variables-0-name": "a-b"}, "variables"),
    "a variable twice": ({"variables-0-name": "A", "variables-1-name": "A"}, "variables"),
    "a decision that is none": ({"rules-0-tool": "*", "rules-0-do": "maybe"}, "rules"),
    "a slug with an underscore": ({"slug": "a_b"}, "slug"),
    "a slug that is taken": ({"slug": "acme-server"}, "__all__"),
    "a timeout of nothing": ({"timeout": "0"}, "timeout"),
    "a local process, of an organization": ({"transport": "stdio", "url": "", "command": "sh"}, "transport"),
}


@pytest.mark.django_db
class TestDefinitions:
    def test_one_that_can_work_is_stored(self, world: World) -> None:
        answer = add(
            client_of(world.acme.people[Role.ADMIN]),
            read_only="get_*\r\n search \r\n\r\n",
            **{
                "headers-0-name": "X-Token",
                "headers-0-value": "t {{TOKEN}} {{user.email}}",
                "variables-0-name": "TOKEN",
                "variables-0-title": "Your token",
                "rules-0-tool": "delete_*",
                "rules-0-do": "deny",
                "rules-1-tool": "*",
                "rules-1-do": "ask",
                "grants-TOTAL_FORMS": "1",
                "grants-0-whole_organization": "on",
            },
        )
        assert answer.status_code == 302, errors(answer)
        server = MCPServer.objects.as_system().get(slug="new")
        assert server.organization == world.acme.organization
        assert server.read_only == ["get_*", "search"]
        assert server.rules == [
            {"tool": "delete_*", "do": "deny", "remember": False},
            {"tool": "*", "do": "ask", "remember": False},
        ] or server.rules == [{"tool": "delete_*", "do": "deny"}, {"tool": "*", "do": "ask"}]
        assert server.headers == {"X-Token": "t {{TOKEN}} {{user.email}}"}
        assert list(server.variables) == ["TOKEN"]
        assert ServerGrant.objects.get(server=server).whole_organization

    @pytest.mark.parametrize("name", REFUSED)
    def test_one_that_cannot_is_refused_by_its_field(self, world: World, name: str) -> None:
        values, field = REFUSED[name]
        answer = add(client_of(world.acme.people[Role.OWNER]), **values)
        assert field in errors(answer)
        assert not MCPServer.objects.as_system().filter(slug="new").exists()

    def test_a_superuser_defines_a_local_process(self, world: World) -> None:
        local = {"transport": "stdio", "url": "", "command": "python", "args": "-m\r\ndemo.mcp_server"}
        more = {"env-0-name": "A", "env-0-value": "b", "organization": str(world.acme.organization.pk)}
        assert add(client_of(world.root), **local, **more).status_code == 302
        server = MCPServer.objects.as_system().get(slug="new")
        assert (server.args, server.env) == (["-m", "demo.mcp_server"], {"A": "b"})

    def test_a_superuser_names_a_listed_variable_of_the_machine_and_an_admin_may_only_keep_it(
        self, world: World, settings: Any
    ) -> None:
        settings.MCP_ENV_ALLOWLIST = ["SHARED_KEY"]
        more = {"organization": str(world.acme.organization.pk), "headers-0-name": "X-Key"}
        for text in ("${OTHER}", "${SHARED_KEY} ${OTHER}", "${SHARED_KEY"):
            assert "headers" in errors(add(client_of(world.root), **more, **{"headers-0-value": text}))
        assert add(client_of(world.root), **more, **{"headers-0-value": "k ${SHARED_KEY}"}).status_code == 302
        server = MCPServer.objects.as_system().get(slug="new")
        assert server.headers == {"X-Key": "k ${SHARED_KEY}"}
        admin = client_of(world.acme.people[Role.ADMIN])
        assert change(admin, server, title="Renamed").status_code == 302
        assert (server.title, server.headers) == ("Renamed", {"X-Key": "k ${SHARED_KEY}"})
        stolen = {"headers-rows": "1", "headers-0-name": "X-Mine", "headers-0-value": "${SHARED_KEY}"}
        assert "headers" in errors(change(admin, server, **stolen))

    def test_what_a_superuser_defined_to_run_here_an_admin_grants_and_rules_but_does_not_change(
        self, world: World
    ) -> None:
        server = world.acme[MCPServer]
        MCPServer.objects.as_system().filter(pk=server.pk).update(
            transport="stdio", url="", headers={}, oauth=None, command="python", args=["-m", "x"], env={"A": CANARY}
        )
        client = client_of(world.acme.people[Role.OWNER])
        page = client.get(url(MCPServer, "change", server)).content.decode()
        assert CANARY not in page
        answer = change(
            client,
            server,
            command="sh",
            args="-c\r\nid",
            transport="http",
            title="Mine",
            **{"env-rows": "1", "env-0-name": "A", "env-0-value": "stolen", "rules-0-do": "deny"},
        )
        assert answer.status_code == 302
        assert (server.title, server.rules[0]["do"]) == ("Mine", "deny")
        assert (server.transport, server.command, server.args, server.env) == (
            "stdio",
            "python",
            ["-m", "x"],
            {"A": CANARY},
        )

    @pytest.mark.parametrize("fields", [{}, {"grants-0-whole_organization": "on", "grants-0-group": "acme"}])
    def test_a_grant_names_exactly_one(self, world: World, fields: dict[str, str]) -> None:
        group = str(ServerGrant.objects.get(server=world.acme[MCPServer]).group_id)
        named = {name: group if value == "acme" else value for name, value in fields.items()}
        answer = add(
            client_of(world.acme.people[Role.OWNER]), **{"grants-TOTAL_FORMS": "1", "grants-0-tool": "x"}, **named
        )
        assert answer.status_code == 200
        assert "exactly one" in answer.content.decode()

    def test_the_scope_is_shown_with_its_reason_and_the_tools_with_their_decision(self, world: World) -> None:
        page = client_of(world.acme.people[Role.OWNER]).get(url(MCPServer, "change", world.acme[MCPServer]))
        text = page.content.decode()
        assert "<strong>user</strong> – Each user signs in" in text
        assert "acme-server__look" in text
        assert "The rule “*: ask” of the server decides." in text


# --- Buttons: with a real server ------------------------------------------------------------------------------------


@pytest.fixture
async def closing() -> AsyncIterator[None]:
    yield
    await connections.aclose()


@pytest.fixture
def cafe(transactional_db: None, world: World) -> MCPServer:
    server: MCPServer = world.acme[MCPServer]
    server.transport, server.url, server.command, server.args = "stdio", "", "python", ["-m", "demo.mcp_server"]
    server.headers, server.variables, server.oauth = {}, {}, None
    server.save()
    CatalogueEntry.objects.all().delete()
    return server


async def connected(server: MCPServer) -> ConnectionInfo:
    """An open connection to `server`, of this loop."""
    target = await in_rows(lambda: target_of(server, system_actor(server), {}))
    async with connections.manager().borrow(target):
        pass
    (info,) = connections.live_connections()
    return info


async def test_the_test_of_a_connection_shows_what_was_found(cafe: MCPServer, world: World, closing: None) -> None:
    client = AsyncClient()
    await client.aforce_login(world.acme.people[Role.OWNER])
    answer = await client.post(url(MCPServer, "test", cafe))
    text = answer.content.decode()
    assert answer.context["report"].error == ""
    assert answer.context["report"].tools == 6
    took = answer.context["report"].duration_ms
    assert took > 0
    for expected in ("It works.", "stdio", "2026-07-28", "acme-server__add_note", "destructive: no", f"{took} ms"):
        assert expected in text


async def test_live_connections_are_listed_and_closed_by_their_own_organization(
    cafe: MCPServer, world: World, closing: None
) -> None:
    client = AsyncClient()
    info = await connected(cafe)
    await client.aforce_login(world.globex.people[Role.OWNER])
    assert cafe.title not in (await client.get(reverse("admin:connections"))).content.decode()
    close = reverse("admin:connections_close")
    assert (await client.post(close, {"connection": str(info.id)})).status_code == 404
    assert (await client.get(close)).status_code == 405
    await client.aforce_login(world.acme.people[Role.AUDITOR])
    assert cafe.title in (await client.get(reverse("admin:connections"))).content.decode()
    assert (await client.post(close, {"connection": str(info.id)})).status_code == 404
    await client.aforce_login(world.acme.people[Role.ADMIN])
    assert (await client.post(close, {"connection": str(info.id)})).status_code == 302
    assert [other.state for other in connections.live_connections()] in ([], ["closing"])


async def test_refreshing_stores_the_tools_and_an_edit_ends_the_connection(
    cafe: MCPServer, world: World, closing: None
) -> None:
    client = AsyncClient()
    await client.aforce_login(world.root)
    await connected(cafe)
    answer = await client.post(url(MCPServer, "refresh", cafe))
    assert answer["Location"] == url(MCPServer, "change", cafe)
    entry = await in_rows(CatalogueEntry.objects.get, server=cafe)
    assert len(entry.tools) == 6
    page = await client.get(url(MCPServer, "change", cafe))
    assert "Tools listed: 6." in page.content.decode()
    off = post_data(page)
    off.pop("enabled")
    assert (await client.post(url(MCPServer, "change", cafe), off)).status_code == 302
    await asyncio.sleep(0)  # the closing was handed to this loop
    assert [other.state for other in connections.live_connections()] in ([], ["closing"])


async def test_the_test_of_a_server_that_wants_ones_own_values_leads_to_where_they_are_entered(
    cafe: MCPServer, world: World, closing: None
) -> None:
    cafe.variables = {"TOKEN": {"title": "Your token"}}
    await in_rows(cafe.save)
    client = AsyncClient()
    await client.aforce_login(world.acme.people[Role.OWNER])
    shown = (await client.post(url(MCPServer, "test", cafe))).content.decode()
    assert "Set up first: Your token." in shown
    assert 'href="/o/acme/connections/#server-acme-server"' in shown


async def test_a_server_that_cannot_be_reached_is_told_and_nothing_breaks(
    cafe: MCPServer, world: World, closing: None
) -> None:
    cafe.command = "no-such-command-here"
    await in_rows(cafe.save)
    client = AsyncClient()
    await client.aforce_login(world.root)
    answer = await client.post(url(MCPServer, "test", cafe))
    assert answer.status_code == 200
    assert "It did not work." in answer.content.decode()
    answer = await client.post(url(MCPServer, "refresh", cafe), follow=True)
    assert answer.status_code == 200
    assert answer.context["original"] == cafe
