"""Accounts of servers in the admin: what is entered, what was discovered, who linked what, and *Revoke*."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import AuditRecord, Role
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient, OAuthDiscovery
from mcpservers.oauth.revocation import NOTHING_LEFT
from mcpservers.oauth_field import OAuthField, inputs_of
from tests.accounts.test_tenant_admin import client_of
from tests.fakes.admin_world import CANARY, Tenant, World
from tests.fakes.authserver import FakeAuthServer, serving
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.mcpservers.test_admin import change, errors, said


def page(client: Client, server: MCPServer) -> Any:
    return client.get(reverse("admin:mcpservers_mcpserver_oauth", args=[server.pk]))


def post(client: Client, what: str, server: MCPServer, **data: Any) -> Any:
    return client.post(reverse(f"admin:mcpservers_mcpserver_{what}", args=[server.pk]), data, follow=True)


def link(tenant: Tenant, **fields: Any) -> LinkedAccount:
    server = tenant[MCPServer]
    values = {
        "organization": tenant.organization,
        "server": server,
        "user": tenant.people[Role.MEMBER],
        "binding": server.oauth_binding(),
        "issuer": "https://login.example.org",
        "name": "Ada Lovelace",
        "scopes": ["notes:read"],
        "is_default": True,
        "tokens": {"access_token": f"{CANARY}-access", "refresh_token": f"{CANARY}-refresh"},
    } | fields
    return LinkedAccount.objects.create(**values)


def discovered(server: MCPServer) -> None:
    now = timezone.now()
    OAuthDiscovery.objects.create(
        organization=server.organization,
        server=server,
        binding=server.oauth_binding(),
        document={
            "resource": server.url,
            "issuer": "https://login.example.org",
            "authorization_endpoint": "https://login.example.org/authorize",
            "token_endpoint": "https://login.example.org/token",
            "registration_endpoint": "https://login.example.org/register",
            "scopes": ["notes:read", "notes:write"],
            "dpop": True,
            "warnings": ["Mind the gap."],
        },
        fetched_at=now,
        expires_at=now + timedelta(hours=1),
    )


# --- What is entered --------------------------------------------------------------------------------------------------


def cleaned(stored: Any = None, **typed: Any) -> Any:
    field = OAuthField()
    field.stored = stored
    data = {f"oauth-{key}": value for key, value in (inputs_of(stored) | typed).items() if value is not False}
    return field.clean(field.widget.value_from_datadict(data, {}, "oauth"))


def test_what_is_stored_comes_back_as_it_was() -> None:
    for stored in (
        None,
        {},
        {"share_tools": True},
        {"client_id": "c", "client_secret": "s", "scopes": ["a", "b"]},
        {"grant": "client_credentials", "client_id": "c", "private_key": "PEM"},
        {"grant": "jwt-bearer", "client_id": "c", "assertion": "a.b.c"},
        {"issuer": "https://login.example.org", "resource": False, "obo": {"grant": "jwt-bearer"}},
    ):
        assert cleaned(stored) == stored
    assert CANARY not in str(inputs_of({"client_secret": CANARY, "private_key": CANARY, "assertion": CANARY}))


def test_secrets_are_kept_replaced_and_cleared() -> None:
    stored = {"client_id": "c", "client_secret": "old"}
    assert cleaned(stored, client_secret="new")["client_secret"] == "new"
    assert cleaned(stored, clear_client_secret="on") == {"client_id": "c"}


def test_the_token_of_a_workload_is_kept_replaced_and_dropped_with_its_kind() -> None:
    stored = {"grant": "jwt-bearer", "client_id": "c", "assertion": "old"}
    assert cleaned(stored, scopes="a") == stored | {"scopes": ["a"]}
    assert cleaned(stored, assertion="new") == stored | {"assertion": "new"}
    assert "assertion" not in cleaned(stored, clear_assertion="on")
    assert cleaned(stored, kind="people") == {"client_id": "c"}


def test_the_kinds_of_accounts() -> None:
    assert cleaned(None, kind="people") == {}
    assert cleaned({}, kind="discovered") is None
    robot = {"kind": "organization", "client_id": "c", "client_secret": "s"}
    assert cleaned(None, **robot) == {"grant": "client_credentials", "client_id": "c", "client_secret": "s"}
    assert cleaned(None, kind="people", scopes="a, b  c") == {"scopes": ["a", "b", "c"]}


@pytest.mark.parametrize(
    "typed",
    [
        {"kind": "nobody"},
        {"kind": "discovered", "client_id": "c"},
        {"kind": "people", "more": "not json"},
        {"kind": "people", "more": "[1]"},
        {"kind": "people", "more": json.dumps({"client_secret": "s"})},
    ],
)
def test_what_makes_no_sense_is_refused(typed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        cleaned(None, **typed)


@pytest.mark.django_db
def test_a_server_gets_its_accounts_in_the_form(world: World) -> None:
    client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
    answer = change(client, server, **{"oauth-client_secret": "replaced", "oauth-scopes": "a b"})
    assert answer.status_code == 302
    assert server.oauth == {"client_id": "c", "client_secret": "replaced", "scopes": ["a", "b"]}
    assert server.revision == 2
    assert server.obo_author == str(world.acme.people[Role.OWNER].pk)
    assert "oauth" in errors(change(client, server, **{"oauth-more": json.dumps({"colour": "blue"})}))


@pytest.mark.django_db
def test_the_token_of_a_workload_is_entered_and_not_shown_again(world: World) -> None:
    client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
    typed = {"oauth-kind": "workload", "oauth-clear_client_secret": "on"}
    assert "workload" in str(errors(change(client, server, **typed)))
    assert change(client, server, **typed, **{"oauth-assertion": f" {CANARY}.b.c\n"}).status_code == 302
    assert server.oauth == {"grant": "jwt-bearer", "client_id": "c", "assertion": f"{CANARY}.b.c"}
    text = client.get(reverse("admin:mcpservers_mcpserver_change", args=[server.pk])).content.decode()
    assert "Clear the stored token" in text
    assert CANARY not in text
    change(client, server, url="https://elsewhere.example.org/mcp", **{"oauth-kind": "people"})
    assert "assertion" not in server.oauth


@pytest.mark.django_db
def test_what_is_entered_with_a_new_address_is_kept_without_the_old_secret(world: World) -> None:
    client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
    change(client, server, url="https://elsewhere.example.org/mcp", **{"oauth-scopes": "x"})
    assert server.oauth == {"client_id": "c", "scopes": ["x"]}


@pytest.mark.django_db
@pytest.mark.parametrize("more", ['{"issuer": "https://evil.example"}', '{"token_endpoint": "https://evil.example/t"}'])
def test_another_address_of_the_sign_in_does_not_get_the_stored_secret(world: World, more: str) -> None:
    client, server = client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]
    secret = {"oauth-client_id": "us", "oauth-client_secret": "kept-1"}
    change(client, server, **{"oauth-kind": "people", **secret})
    change(client, server, **{"oauth-kind": "people", **secret, "oauth-client_secret": "", "oauth-scopes": "a"})
    assert server.oauth["client_secret"] == "kept-1"
    answer = change(client, server, **{"oauth-kind": "people", **secret, "oauth-client_secret": "", "oauth-more": more})
    assert "client_secret" not in server.oauth
    assert "dropped: client_secret" in said(answer)
    change(client, server, **{"oauth-kind": "people", **secret, "oauth-more": '{"issuer": "https://new.example"}'})
    assert server.oauth["client_secret"] == "kept-1", "it was typed for the new one"


# --- What is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_page_shows_what_is_known_and_no_secret(world: World) -> None:
    server = world.acme[MCPServer]
    discovered(server)
    link(world.acme)
    OAuthClient.objects.create(
        organization=world.acme.organization,
        server=server,
        issuer="https://login.example.org",
        source="dynamic",
        client_id="dyn-123",
        secrets={"client_secret": f"{CANARY}-registered"},
        auth_method="client_secret_basic",
    )
    answer = page(client_of(world.acme.people[Role.OWNER]), server)
    text = answer.content.decode()
    for shown in (
        "https://login.example.org/authorize",
        "yes, with a proof in each request (DPoP)",
        "Mind the gap.",
        "dyn-123",
        "Dynamic registration",
        "/mcp/oauth/callback",
        "notes:write",
        "Ada Lovelace",
        "acme-member",
        "Revoke",
    ):
        assert shown in text
    assert CANARY not in text


@pytest.mark.django_db
def test_before_anything_is_known_the_page_says_so(world: World) -> None:
    text = page(client_of(world.acme.people[Role.OWNER]), world.acme[MCPServer]).content.decode()
    assert "Nothing yet." in text
    assert "Nobody yet." in text


@pytest.mark.django_db
def test_an_auditor_looks_and_changes_nothing(world: World) -> None:
    server, account = world.acme[MCPServer], link(world.acme)
    client = client_of(world.acme.people[Role.AUDITOR])
    text = page(client, server).content.decode()
    assert "Ada Lovelace" in text
    assert "Revoke" not in text
    post(client, "revoke", server, account=account.pk)
    assert LinkedAccount.objects.as_system().filter(pk=account.pk).exists()
    change_page = client.get(reverse("admin:mcpservers_mcpserver_change", args=[server.pk])).content.decode()
    assert CANARY not in change_page


@pytest.mark.django_db
def test_nobody_of_another_organization_sees_or_revokes_anything(world: World) -> None:
    server, account = world.acme[MCPServer], link(world.acme)
    client = client_of(world.globex.people[Role.OWNER])
    assert "Ada Lovelace" not in page(client, server).content.decode()
    assert page(client, server).status_code == 302
    post(client, "revoke", server, account=account.pk)
    post(client, "revoke", world.globex[MCPServer], account=account.pk)  # through a server of one's own
    assert LinkedAccount.objects.as_system().filter(pk=account.pk).exists()


# --- Buttons ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who", ["owner", "root"])
def test_an_account_is_revoked_by_who_manages_and_that_is_recorded(world: World, who: str) -> None:
    server, account = world.acme[MCPServer], link(world.acme)
    user = world.root if who == "root" else world.acme.people[Role.OWNER]
    answer = post(client_of(user), "revoke", server, account=account.pk)
    assert said(answer) == f"“Ada Lovelace” is disconnected. {NOTHING_LEFT}"  # no client is known that got the tokens
    assert not LinkedAccount.objects.as_system().filter(pk=account.pk).exists()
    entry = AuditRecord.objects.as_system().get(action="link.revoked")
    assert (entry.actor_id, entry.via) == (user.pk, "admin")
    assert entry.person_id == world.acme.people[Role.MEMBER].pk
    assert "not there any more" in post(client_of(user), "revoke", server, account=account.pk).content.decode()
    assert "not there any more" in post(client_of(user), "revoke", server, account="nonsense").content.decode()


@pytest.mark.django_db(transaction=True)
def test_discover_again_reads_the_metadata_and_says_what_came_of_it(world: World) -> None:
    server, client = world.acme[MCPServer], client_of(world.acme.people[Role.OWNER])
    assert client.get(reverse("admin:mcpservers_mcpserver_discover", args=[server.pk])).status_code == 405
    with serving(FakeAuthServer()) as auth, serving(ProtectedMCPServer(auth=auth)) as fake:
        MCPServer.objects.as_system().filter(pk=server.pk).update(url=fake.url)
        text = post(client, "discover", server).content.decode()
        assert f"People sign in at {auth.origin.removeprefix('http://')}." in text
        assert auth.url("authorize") in text
        fake.prm_changes = {"authorization_servers": ["http://127.0.0.1:9"]}
        assert "cannot be reached" in post(client, "discover", server).content.decode()
