"""People's own servers in the admin: that they exist, a switch that holds, and nothing else of them anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditRecord, Role
from agents.models import Agent
from mcpservers.models import MCPServer, OwnServer
from tests.fakes.admin_world import CANARY, World, post_data, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_client(world: World) -> Client:
    client = Client()
    client.force_login(world.acme.people[Role.ADMIN])
    return client


def change_address(row: Any) -> str:
    return reverse("admin:mcpservers_ownserver_change", args=[row.pk])


def test_an_admin_sees_whose_it_is_and_its_host_and_no_more(world: World, admin_client: Client) -> None:
    row = world.acme[OwnServer]
    for address in (reverse("admin:mcpservers_ownserver_changelist"), change_address(row)):
        page = admin_client.get(address).content.decode()
        assert "acme own server" in page
        assert str(world.acme.people[Role.MEMBER]) in page
        assert "acme.example.org" in page
        assert CANARY not in page
        assert "example.org/mcp" not in page
        assert "globex" not in page
    assert admin_client.get(reverse("admin:mcpservers_ownserver_add")).status_code == 403


@pytest.mark.parametrize(
    "name", ["change", "delete", "history", "test", "refresh", "try", "health", "pins", "oauth", "reconnect", "revoke"]
)
def test_the_pages_of_the_organizations_servers_know_none_of_them(
    world: World, admin_client: Client, name: str
) -> None:
    row = world.acme[OwnServer]
    address = reverse(f"admin:mcpservers_mcpserver_{name}", args=[row.pk])
    root = Client()
    root.force_login(world.root)
    for client in (admin_client, root):
        response = client.post(address) if name in ("test", "refresh", "reconnect", "revoke") else client.get(address)
        assert response.status_code in (302, 404), name
        assert "own server" not in response.content.decode()
    listed = admin_client.get(reverse("admin:mcpservers_mcpserver_changelist")).content.decode()
    assert "acme own server" not in listed


def test_an_admin_switches_it_off_which_is_recorded_and_holds(world: World, admin_client: Client) -> None:
    row = world.acme[OwnServer]
    page = admin_client.get(change_address(row))
    response = admin_client.post(
        change_address(row), post_data(page) | {"barred": "on", "title": "x", "url": "https://evil"}
    )
    assert response.status_code == 302
    row.refresh_from_db()
    assert (row.barred, row.enabled, row.title) == (True, False, "acme own server")
    assert row.headers["Authorization"] == f"Bearer {CANARY}-own"
    entry = AuditRecord.objects.as_system().get(action="definition.changed")
    assert (entry.object_type, entry.object_id, entry.person_id) == ("server", str(row.pk), row.owner_id)
    assert (entry.via, entry.details["values"]) == ("admin", {"barred": [False, True]})
    page = admin_client.get(change_address(row))
    admin_client.post(change_address(row), {k: v for k, v in post_data(page).items() if k != "barred"})
    row.refresh_from_db()
    assert (row.barred, row.enabled) == (False, False)  # its owner may switch it on now


def test_an_auditor_looks_and_a_member_does_not(world: World) -> None:
    row = world.acme[OwnServer]
    for role, status in ((Role.AUDITOR, 200), (Role.MEMBER, 302)):
        client = Client()
        client.force_login(world.acme.people[role])
        assert client.get(change_address(row)).status_code == status, role
        client.post(change_address(row), {"barred": "on"})
        row.refresh_from_db()
        assert not row.barred


def test_no_agent_is_given_one_and_no_why_names_one(world: World, admin_client: Client) -> None:
    own = str(world.acme[OwnServer].pk)
    agent = admin_client.get(reverse("admin:agents_agent_change", args=[world.acme[Agent].pk]))
    data = post_data(agent)
    assert own not in agent.content.decode()
    prefix = next(name.removesuffix("-0-server") for name in data if name.endswith("-0-server"))
    response = admin_client.post(
        reverse("admin:agents_agent_change", args=[world.acme[Agent].pk]), data | {f"{prefix}-0-server": own}
    )
    assert response.status_code == 200  # shown again, with the error
    assert world.acme[Agent].servers.get().server == world.acme[MCPServer]
    assert own not in admin_client.get(reverse("admin:why")).content.decode()


def test_the_organization_and_the_agent_have_their_switches(world: World, admin_client: Client) -> None:
    organization, agent = world.acme.organization, world.acme[Agent]
    address = reverse("admin:accounts_organization_change", args=[organization.pk])
    admin_client.post(address, post_data(admin_client.get(address)) | {"own_servers": "members"})
    address = reverse("admin:agents_agent_change", args=[agent.pk])
    admin_client.post(address, post_data(admin_client.get(address)) | {"user_servers": "on"})
    organization.refresh_from_db()
    agent.refresh_from_db()
    assert (organization.own_servers, agent.user_servers) == ("members", True)
    entry = AuditRecord.objects.as_system().get(action="organization.changed")
    assert entry.details["values"] == {"own_servers": ["nobody", "members"]}
