"""Secrets of every kind are planted, and everything that is recorded and shown of them is searched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiKey, AuditRecord, Membership, Role, User
from agents.models import Agent, ModelEndpoint
from agents.parts import ToolResult, ToolStatus
from conversations import rounds
from conversations.api import variables
from conversations.configuration.applying import apply_configuration
from conversations.models import ToolCall, Turn
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from mcpservers.oauth import accounts
from tests.accounts.test_admin import add, edit
from tests.accounts.test_signin import sign_in
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import CANARY, World, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db(transaction=True)

FILE = """
users: {new: {email: %(secret)s@example.org, password: %(secret)s-password-1}}
organizations:
  acme:
    members: {new: guest, acme-owner: owner}
    endpoints: {main: {base_url: "http://127.0.0.1:9/v1", api_key: %(secret)s, headers: {X: %(secret)s}}}
    servers:
      cafe:
        transport: http
        url: "https://cafe.example.org/mcp"
        headers: {Authorization: "Bearer %(secret)s"}
        oauth: {client_id: c, client_secret: %(secret)s}
"""


def configured(world: World, actor_of: Any) -> None:
    """Do everything that has to do with a secret."""
    acme, owner, member = world.acme, client_of(world.acme.people[Role.OWNER]), world.acme.people[Role.MEMBER]
    secret = f"{CANARY}-typed"
    edit(owner, acme[ModelEndpoint], api_key=secret)
    edit(owner, acme[MCPServer], **{"headers-0-name": "X", "headers-0-value": secret, "title": "Renamed"})
    edit(client_of(world.root), member, new_password=f"{secret}-password-2", first_name=secret, email=f"{secret}@x.org")
    add(owner, ApiKey, name=secret, scopes=["chat"], organization=str(acme.organization.pk))
    ServerGrant.objects.create(server=acme[MCPServer], user=member)
    variables.change(actor_of(member), "acme-server", {"TOKEN": secret})
    apply_configuration(FILE % {"secret": secret})
    cache.clear()
    for login, password in ((member.username, secret), (secret, secret), (f"{secret}@x.org", secret)):
        sign_in(Client(), login, password)


def called(world: World) -> None:
    turn = Turn.objects.get(conversation__organization=world.acme.organization)
    call = ToolCall.objects.create(
        turn=turn,
        message=turn.message,
        round=1,
        position=0,
        name="x",
        status="running",
        arguments={"password": CANARY, CANARY: [CANARY]},
        arguments_text=CANARY,
    )
    told = ToolResult(ToolStatus.OK, f"Bearer {CANARY}", ({"type": "text", "text": CANARY},))
    rounds.finish_call(turn, call.pk, told)


def linked(world: World, actor_of: Any) -> None:
    member, server = world.acme.people[Role.MEMBER], world.acme[MCPServer]
    account = LinkedAccount.objects.create(
        organization=world.acme.organization,
        server=server,
        user=member,
        binding="b",
        issuer="https://login.example",
        name="ada",
        subject=CANARY,
        tokens={"access_token": CANARY, "refresh_token": CANARY},
    )
    accounts.rename(actor_of(member), account.pk, "grace")


def exported(client: Client, form: str, of: object) -> str:
    answer = client.post(f"{reverse('admin:accounts_auditrecord_export')}?of={of}", {"format": form})

    async def read() -> bytes:
        return b"".join([piece async for piece in answer])

    return async_to_sync(read)().decode()


def test_no_secret_is_in_a_row_a_page_or_a_file(
    world: World, capsys: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def actor_of(user: User) -> Any:
        from accounts.actors import find_actor

        return find_actor(user.pk, Membership.objects.get(user=user).organization_id)

    world.acme.organization.audit_bodies = True
    world.acme.organization.save()
    began = timezone.now()
    configured(world, actor_of)
    called(world)
    linked(world, actor_of)
    call_command("createapikey", "acme-owner", org="acme", name=f"{CANARY}-name")
    keys = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if "cui_" in line]
    call_command("signin_link", "acme-owner")
    link = capsys.readouterr().out.strip().rstrip("/").rpartition("/")[2]
    secrets = [CANARY, link, *keys]
    assert len(secrets) == 3

    rows = AuditRecord.objects.as_system().filter(at__gte=began)
    actions = set(rows.values_list("action", flat=True))
    assert actions >= {
        *("definition.changed", "user.changed", "user.created", "key.created", "variables.changed", "member.added"),
        *("sign_in.failed", "sign_in.link_made", "tool.call", "link.changed", "configuration.applied"),
    }
    assert rows.filter(body__isnull=False).count() == 1  # the call's, which is for those who ask for it
    plain = [name.attname for name in AuditRecord._meta.concrete_fields if name.attname != "body"]
    texts = [json.dumps(list(rows.values(*plain)), default=str)]
    auditor = client_of(world.acme.people[Role.AUDITOR])
    texts += [
        exported(client_of(world.root), form, of)
        for form in ("csv", "jsonl")
        for of in (world.acme.organization.pk, "none")
    ]
    texts.append(auditor.get(url(AuditRecord, "changelist")).content.decode())
    texts += [
        auditor.get(url(AuditRecord, "change", row)).content.decode()
        for row in rows.filter(organization_id=world.acme.organization.pk)
    ]
    texts.append(caplog.text)
    for text in texts:
        for secret in secrets:
            assert secret not in text
    assert len(texts) > 15
    assert Agent.objects.as_system().exists()  # nothing was undone by what was refused
