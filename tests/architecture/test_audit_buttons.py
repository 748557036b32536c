"""Every button of the admin that is said to be recorded is pressed, and its entry is there."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import AuditAction, AuditRecord, Role
from agents.models import ModelEndpoint
from agents.providers.endpoints import EndpointReport
from mcpservers import peers
from mcpservers.models import LinkedAccount, MCPServer, ToolVersion
from tests.accounts.test_tenant_admin import client_of
from tests.architecture.test_audit import ADMIN_PAGES
from tests.fakes.admin_world import World

pytestmark = pytest.mark.django_db(transaction=True)
RECORDED = {name: found for name, found in ADMIN_PAGES.items() if isinstance(found, (AuditAction, tuple))}
ROWS = {"mcpservers_mcpserver": MCPServer, "agents_modelendpoint": ModelEndpoint}


def presses(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """What the address names, and what is sent, for each entry that is expected."""
    acme = world.acme
    row = next((acme[model] for prefix, model in ROWS.items() if name.startswith(prefix)), None)
    server = acme[MCPServer]
    match name:
        case "accounts_auditrecord_contents":
            yield [acme[AuditRecord].pk], {}
        case "connections_close":
            live = {"id": server.pk, "server_id": server.pk, "user_id": None, "title": "x", "process": ""}
            told = SimpleNamespace(connections=[SimpleNamespace(**live, organization_id=server.organization_id)])
            monkeypatch.setattr(peers, "everywhere", lambda: told)
            yield [], {"connection": str(server.pk)}
        case "mcpservers_mcpserver_revoke":
            account = LinkedAccount.objects.create(organization=acme.organization, server=server, binding="b", name="x")
            yield [server.pk], {"account": str(account.pk)}
        case "mcpservers_mcpserver_pins_decide":
            for verb in ("accept", "reject"):
                version = ToolVersion.objects.create(server=server, tool=verb, hash=verb, definition={"name": verb})
                yield [server.pk], {"do": f"{verb}:{version.pk}"}
        case "mcpservers_mcpserver_try":
            yield [server.pk], {"tool": "look", "arguments": "{}"}
        case _:
            yield [row.pk] if row is not None else [], {}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_a_button_does_is_recorded(name: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(_: object) -> EndpointReport:
        return EndpointReport("http://127.0.0.1:9/v1", ["gpt"])

    monkeypatch.setattr("agents.admin.test_endpoint", asked)
    owner = world.acme.people[Role.OWNER]
    client, expected = client_of(owner), RECORDED[name]
    seen = set(AuditRecord.objects.as_system().values_list("pk", flat=True))
    for arguments, data in presses(name, world, monkeypatch):
        assert client.post(reverse(f"admin:{name}", args=arguments), data).status_code in (200, 302)
    made = [entry for entry in AuditRecord.objects.as_system().order_by("at", "id") if entry.pk not in seen]
    assert [entry.action for entry in made] == list(expected if isinstance(expected, tuple) else [expected])
    for entry in made:
        assert (entry.actor_id, entry.organization_id) == (owner.pk, world.acme.organization.pk)
        assert entry.via == "admin"
