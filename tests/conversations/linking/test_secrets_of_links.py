"""What linking keeps secret is planted, and every page, door and file that tells of links is searched for it."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import AuditRecord, Role
from agents.models import Agent
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from tests.accounts.test_tenant_admin import client_of, every_page, url
from tests.fakes.admin_world import CANARY, World, world
from tests.fakes.link_secrets import plant

__all__ = ["world"]
pytestmark = pytest.mark.django_db(transaction=True)
ABOUT_SERVERS = ("oauth", "pins", "health", "try", "log")


def admin_pages(world: World, client: Client) -> Any:
    """(address, answer) of the pages that are no lists and no forms, with and without what they ask for."""
    server, member, agent = world.acme[MCPServer], world.acme.people[Role.MEMBER], world.acme[Agent]
    for name in ABOUT_SERVERS:
        for query in ("", "?tool=look", "?show=all&q=look"):
            address = reverse(f"admin:mcpservers_mcpserver_{name}", args=[server.pk]) + query
            yield address, client.get(address)
    asked = f"organization={server.organization_id}&user={member.pk}&agent={agent.pk}"
    for name, query in (("why", f"server={server.pk}&tool=look"), ("preview", ""), ("connections", "")):
        for values in ("", f"?organization={server.organization_id}", f"?{asked}&{query}"):
            yield f"{name}{values}", client.get(reverse(f"admin:{name}") + values)


def read(answer: Any) -> str:
    """The whole of an answer, with its headers."""
    if not answer.streaming:
        return str(answer.content.decode() + str(answer.headers))

    async def pieces() -> bytes:
        return b"".join([piece async for piece in answer])

    return async_to_sync(pieces)().decode()


@pytest.mark.parametrize("full", [False, True], ids=["empty rows", "full rows"])
@pytest.mark.parametrize("who", ["root", Role.OWNER, Role.AUDITOR])
def test_every_page_of_the_admin_is_shown_and_holds_no_secret(world: World, who: str, full: bool) -> None:
    user = world.root if who == "root" else world.acme.people[Role(who)]
    if full:
        plant(world.acme[MCPServer], world.acme.people[Role.MEMBER], CANARY)
    client, shown, seen = client_of(user), 0, ""
    for address, answer in [*admin_pages(world, client), *every_page(world, client)]:
        assert answer.status_code in (200, 302, 403), address
        assert who != "root" or answer.status_code == 200 or "/add/" in address or "delete" in address, address
        text = read(answer)
        assert CANARY not in text, address
        assert "Traceback" not in text, address
        shown += answer.status_code == 200
        seen += text
    assert shown > 25
    assert ("Ada Lovelace" in seen and "dyn-1" in seen and "look_rejected" in seen) is full


def test_the_doors_of_a_member_and_the_files_hold_no_secret_of_a_link(
    world: World, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server, member = world.acme[MCPServer], world.acme.people[Role.MEMBER]
    ServerGrant.objects.create(server=server, whole_organization=True)
    account, began = plant(server, member, CANARY), timezone.now()
    client = client_of(member)
    home = "/o/acme/connections/"
    told = [client.get(home), client.get(f"{home}{server.slug}/begin?account={account.pk}&window=1")]
    doors = ("me", "agents", "connections", "approvals", f"servers/{server.slug}/variables")
    told += [client.get(f"/api/v1/{door}") for door in (*doors, f"servers/{server.slug}/why?tool=look")]
    assert {answer.status_code for answer in told} == {200}
    told += [client.get(f"/mcp/oauth/callback?state={CANARY}&code={CANARY}-code&iss={CANARY}")]
    told += [client.post(f"{home}accounts/{account.pk}/", {"action": "rename", "name": "Work"})]
    told += [client.post(f"{home}{server.slug}/begin")]  # nobody is there: it fails
    told += [client.post(f"{home}accounts/{account.pk}/", {"action": "disconnect"}), client.get(home)]
    root, auditor = client_of(world.root), client_of(world.acme.people[Role.AUDITOR])
    machine = LinkedAccount.objects.as_system().get(server=server)
    revoke = reverse("admin:mcpservers_mcpserver_revoke", args=[server.pk])
    told += [root.post(revoke, {"account": machine.pk}, follow=True)]
    export = reverse("admin:accounts_auditrecord_export")
    told += [auditor.post(export, {"format": form}) for form in ("csv", "jsonl")]
    told += [auditor.get(url(AuditRecord, "changelist"))]
    told += [auditor.get(url(AuditRecord, "change", entry)) for entry in AuditRecord.objects.filter(at__gte=began)]
    texts = [read(answer) for answer in told]
    call_command("export_config")
    texts += [capsys.readouterr().out, caplog.text]
    for text in texts:
        assert CANARY not in text.replace(f"{CANARY}-query", "")  # of the member's own server, told to the member
    assert "Ada Lovelace" in texts[0]
    actions = set(AuditRecord.objects.filter(at__gte=began).values_list("action", flat=True))
    assert actions >= {"link.failed", "link.changed", "link.revoked", "audit.exported"}
    assert not LinkedAccount.objects.as_system().filter(server=server).exists()
