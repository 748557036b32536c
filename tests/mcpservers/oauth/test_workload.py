"""The organization's own account, by the token of a workload (RFC 7523, section 2.1)."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.utils import timezone

from accounts.actors import Actor
from chatui.rows import in_rows
from mcpservers.errors import LinkError, ServerUnavailableError
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import accounts, flow
from mcpservers.oauth.grants import JWT_BEARER
from mcpservers.oauth.tokens import AccountTokens
from mcpservers.oauth.whose import Whose, whose_account
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Make, tokens_of
from tests.mcpservers.oauth.resource import Resource

PLATFORM = "https://platform.example.org"
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(autouse=True)
def _trusted(auth: FakeAuthServer) -> None:
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    auth.workloads = {PLATFORM: public}
    auth.configure("robot")  # a public client


def assertion(auth: FakeAuthServer, **claims: Any) -> str:
    said = {"iss": PLATFORM, "sub": "workload", "aud": auth.issuer, "exp": int(time.time()) + 600}
    return jwt.encode({name: value for name, value in (said | claims).items() if value}, KEY, "ES256")


def oauth(token: str) -> dict[str, Any]:
    return {"grant": "jwt-bearer", "client_id": "robot", "assertion": token, "scopes": ["notes:read"]}


async def source(actor: Actor, server: MCPServer) -> AccountTokens:
    account = await in_rows(accounts.choose, actor, server)
    assert account is not None
    return tokens_of(account)


async def test_the_workloads_token_gives_the_organization_an_account(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    token = assertion(auth)
    server = await make_server(resource.url, oauth=oauth(f"{token}\n"))  # as files end
    assert whose_account(server) is Whose.ORGANIZATION
    given = auth.valid(await (await source(actor, server)).current(), resource.url)
    assert given is not None
    assert (given.person, given.client_id, given.scopes) == (None, "robot", ("notes:read",))
    assert auth.last("token").form == {
        "grant_type": JWT_BEARER,
        "assertion": token,
        "client_id": "robot",
        "scope": "notes:read",
        "resource": resource.url,
    }
    with pytest.raises(LinkError, match="nobody links one"):
        await flow.begin(actor, server.pk, browser="b")


async def test_a_token_that_is_due_is_fetched_by_the_same_assertion_and_never_refreshed(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.token_changes = {"refresh_token": "offered"}
    server = await make_server(resource.url, oauth=oauth(assertion(auth)))
    tokens = await source(actor, server)
    first = await tokens.current()
    assert await tokens.current() == first
    await LinkedAccount.objects.as_system().aupdate(refresh_at=timezone.now() - timedelta(seconds=1), renewed_at=None)
    assert await tokens.current() != first
    assert [heard.form["grant_type"] for heard in auth.requests_of("token")] == [JWT_BEARER] * 2


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": 1_700_000_000}, "expired at 2023-11-14 22:13:20 UTC"),
        ({"aud": "https://wrong.example"}, "audience (aud) must be {issuer}"),
        ({"iss": "https://other.example"}, "'https://other.example' is not trusted"),
        ({"exp": None}, "audience (aud) must be {issuer}"),
        ({"exp": None, "groups": ["g" * 500]}, "audience (aud) must be {issuer}"),
    ],
)
async def test_an_assertion_that_is_refused_is_told_with_a_way_out_and_sent_once(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource, claims: dict[str, Any], words: str
) -> None:
    token = assertion(auth, **claims)
    server = await make_server(resource.url, oauth=oauth(token))
    with pytest.raises(ServerUnavailableError) as raised:
        await (await source(actor, server)).current()
    assert raised.value.public_message.endswith("is not accepted. Tell an administrator.")
    row = await LinkedAccount.objects.as_system().aget()
    assert words.format(issuer=auth.issuer) in row.last_error
    assert row.last_error.endswith("Store a new one in the server's OAuth.")
    assert token[:30] not in row.last_error + str(raised.value)
    assert (auth.count("token"), row.refreshing_until, row.state) == (1, None, "ready")

    server.oauth = oauth(assertion(auth))
    await server.asave()
    assert auth.valid(await (await source(actor, server)).current()) is not None
    assert (await LinkedAccount.objects.as_system().aget()).last_error == ""


@pytest.mark.parametrize("token", ["not-a-jwt", "a.b.c", "e30.bnVsbA.c"])
async def test_what_is_no_jwt_is_refused_like_any_other(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource, token: str
) -> None:
    server = await make_server(resource.url, oauth=oauth(token))
    with pytest.raises(ServerUnavailableError, match="does not take the workload's token"):
        await (await source(actor, server)).current()


async def test_a_refusal_of_something_else_does_not_blame_the_assertion(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.on("token", authfaults.refusal("invalid_scope"))
    server = await make_server(resource.url, oauth=oauth(assertion(auth)))
    with pytest.raises(ServerUnavailableError, match="invalid_scope"):
        await (await source(actor, server)).current()
    assert "assertion" not in (await LinkedAccount.objects.as_system().aget()).last_error
