"""Calls on behalf of people who signed in by OpenID Connect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Membership, Role, User
from chatui.rows import in_rows
from mcpservers.errors import NotReadyError, ServerUnavailableError
from mcpservers.models import MCPServer, SignInToken
from mcpservers.oauth import exchange, signins
from mcpservers.oauth.exchange import EXCHANGE, JWT_BEARER, ExchangedTokens
from tests.fakes import authfaults
from tests.fakes.authpages import consent_now
from tests.fakes.authserver import FakeAuthServer, serving
from tests.fakes.authstate import Person
from tests.mcpservers.oauth.conftest import Make
from tests.mcpservers.oauth.resource import Resource

SECRET = "secret-of-chatui"
OBO = {"obo": {"audience": "notes", "scopes": ["notes:read"]}}


def configure(settings: Any, auth: FakeAuthServer) -> None:
    auth.configure("chatui", SECRET, auth_method="client_secret_post")
    app = {
        "provider_id": "oidc",
        "name": "Single sign-on",
        "client_id": "chatui",
        "secret": SECRET,
        "settings": {"server_url": auth.issuer},
    }
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    exchange.forget_all()
    signins._metadata.clear()
    yield
    exchange.forget_all()


SignIn = Callable[..., Awaitable[SignInToken]]


@pytest.fixture
def signed_in(auth: FakeAuthServer, settings: Any, actor: Actor) -> SignIn:
    """Ada's sign-in at the provider is the actor's here."""
    configure(settings, auth)

    async def sign_in(lives: float = 3600, refresh: bool = True) -> SignInToken:
        same: dict[str, Any] = {"client_id": "chatui", "person": auth.people[0], "scopes": ("openid",), "family": "f"}
        tokens = {"access_token": auth.memory.issue("access", seconds=3600, **same).value}
        if refresh:
            tokens["refresh_token"] = auth.memory.issue("refresh", seconds=3600, **same).value
        row, _ = await SignInToken.objects.aupdate_or_create(
            user_id=actor.user_id,
            defaults={
                "provider": "oidc",
                "tokens": tokens,
                "expires_at": timezone.now() + timedelta(seconds=lives),
            },
        )
        return row

    return sign_in


async def obo_server(make_server: Make, resource: Resource, oauth: Any = OBO, author: str = "operator") -> MCPServer:
    return await make_server(resource.url, oauth=oauth, obo_author=author)


def exchanges(auth: FakeAuthServer) -> list[dict[str, str]]:
    return [heard.form for heard in auth.requests_of("token") if heard.form["grant_type"] in (EXCHANGE, JWT_BEARER)]


async def test_the_token_of_a_sign_in_is_exchanged_for_one_of_the_server(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    row = await signed_in()
    source = ExchangedTokens(actor, await obo_server(make_server, resource))
    given = auth.valid(await source.current())
    assert given is not None
    assert given.person is not None
    assert (given.person.username, given.audience, given.scopes) == ("ada", "notes", ("notes:read",))
    (sent,) = exchanges(auth)
    assert sent["subject_token"] == row.tokens["access_token"]
    assert sent["grant_type"] == EXCHANGE
    assert "resource" not in sent
    await source.current()
    assert len(exchanges(auth)) == 1  # until it expires


async def test_a_token_that_is_kept_costs_one_crossing_to_rows(
    signed_in: SignIn, actor: Actor, make_server: Make, resource: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_in()
    source = ExchangedTokens(actor, await obo_server(make_server, resource))
    token = await source.current()
    crossings = []

    async def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
        crossings.append(function)
        return await in_rows(function, *args, **kwargs)

    for module in (exchange, signins):
        monkeypatch.setattr(module, "in_rows", counted)
    assert await source.current() == token
    assert len(crossings) == 1


async def test_without_an_audience_it_is_for_the_server_s_address(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    await signed_in()
    await ExchangedTokens(actor, await obo_server(make_server, resource, {"obo": {}})).current()
    assert exchanges(auth)[0]["resource"] == resource.url


async def test_as_entra_wants_it(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    row = await signed_in()
    oauth = {"obo": {"grant": "jwt-bearer", "scopes": ["notes:read"]}}
    assert auth.valid(await ExchangedTokens(actor, await obo_server(make_server, resource, oauth)).current())
    (sent,) = exchanges(auth)
    assert sent["assertion"] == row.tokens["access_token"]
    assert sent["requested_token_use"] == "on_behalf_of"
    assert "subject_token" not in sent


async def test_a_client_of_its_own_exchanges(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    await signed_in()
    auth.configure("exchanger", "s2")
    oauth = OBO | {"client_id": "exchanger", "client_secret": "s2", "auth_method": "client_secret_basic"}
    given = auth.valid(await ExchangedTokens(actor, await obo_server(make_server, resource, oauth)).current())
    assert given is not None
    assert given.actor == "exchanger"


async def test_a_sign_in_that_expired_is_renewed_once_for_many(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    await signed_in(lives=-1)
    server = await obo_server(make_server, resource)
    found = await asyncio.gather(*(ExchangedTokens(actor, server).current() for _ in range(4)))
    assert all(auth.valid(token) for token in found)
    assert sum(heard.form["grant_type"] == "refresh_token" for heard in auth.requests_of("token")) == 1


@pytest.mark.parametrize(("refresh", "revoked"), [(False, False), (True, True)])
async def test_a_sign_in_that_ended_asks_for_another_one(
    signed_in: SignIn,
    actor: Actor,
    auth: FakeAuthServer,
    make_server: Make,
    resource: Resource,
    refresh: bool,
    revoked: bool,
) -> None:
    await signed_in(lives=-1, refresh=refresh)
    if revoked:
        auth.memory.revoke_all()
    with pytest.raises(NotReadyError) as raised:
        await ExchangedTokens(actor, await obo_server(make_server, resource)).current()
    assert "Sign out and sign in again" in raised.value.public_message


async def test_who_signed_in_with_a_password_is_told(
    actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    with pytest.raises(NotReadyError) as raised:
        await ExchangedTokens(actor, await obo_server(make_server, resource)).current()
    assert "OpenID Connect" in raised.value.public_message


async def test_a_person_s_token_goes_to_the_provider_alone(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    row = await signed_in()
    async with FakeAuthServer() as evil:
        oauth = {"obo": {"token_endpoint": evil.url("token")}, "token_endpoint": evil.url("token")}
        with pytest.raises(ServerUnavailableError):
            await ExchangedTokens(actor, await obo_server(make_server, resource, oauth)).current()
        assert evil.requests == []
    assert row.tokens["access_token"] not in str([heard.body for heard in auth.requests])


async def test_a_refused_token_is_exchanged_again_but_not_at_once_again(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource, monkeypatch: Any
) -> None:
    await signed_in()
    source = ExchangedTokens(actor, await obo_server(make_server, resource))
    token = await source.current()
    with pytest.raises(ServerUnavailableError):
        await source.renewed(token)
    monkeypatch.setattr(exchange, "RIGHT_AFTER_SECONDS", 0)
    assert await source.renewed(token) != token


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (authfaults.refusal("invalid_grant"), NotReadyError),
        (authfaults.refusal("interaction_required", 400, "more is needed"), NotReadyError),
        (authfaults.refusal("invalid_target"), ServerUnavailableError),
        (authfaults.html, ServerUnavailableError),
        (authfaults.die, ServerUnavailableError),
        (authfaults.endless, ServerUnavailableError),
    ],
)
async def test_an_exchange_that_fails_is_told(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource, fault: Any, error: Any
) -> None:
    row = await signed_in()
    auth.on("token", fault)
    with pytest.raises(error) as raised:
        await ExchangedTokens(actor, await obo_server(make_server, resource)).current()
    assert row.tokens["access_token"] not in f"{raised.value} {raised.value.public_message}"


async def test_a_token_that_is_about_to_end_is_exchanged_anew(
    signed_in: SignIn, actor: Actor, auth: FakeAuthServer, make_server: Make, resource: Resource
) -> None:
    await signed_in()
    auth.token_changes = {"expires_in": exchange.SHORTEST_SECONDS}
    source = ExchangedTokens(actor, await obo_server(make_server, resource))
    assert await source.current() != await source.current()
    assert len(exchanges(auth)) == 2


async def test_what_is_kept_is_sealed(signed_in: SignIn, actor: Actor, make_server: Make, resource: Resource) -> None:
    await signed_in()
    token = await ExchangedTokens(actor, await obo_server(make_server, resource)).current()
    assert token not in repr(exchange._kept)


# --- Who answers for it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("author", "allowed"),
    [("operator", True), ("", False), ("alice", True), ("bob", False), ("charlie", False), ("nobody", False)],
)
async def test_it_works_while_whoever_configured_it_may_do_so(
    make_server: Make, resource: Resource, alice: User, bob: User, charlie: User, author: str, allowed: bool
) -> None:
    people = {"alice": alice, "bob": bob, "charlie": charlie}
    server = await obo_server(make_server, resource, author=str(people[author].pk) if author in people else author)
    assert await in_rows(exchange.answers_for, server.pk) is allowed


async def test_who_is_demoted_answers_no_longer(
    signed_in: SignIn, actor: Actor, make_server: Make, resource: Resource, alice: User
) -> None:
    await signed_in()
    source = ExchangedTokens(actor, await obo_server(make_server, resource, author=str(alice.pk)))
    await source.current()
    await Membership.objects.filter(user=alice).aupdate(role=Role.MEMBER)
    with pytest.raises(NotReadyError) as raised:
        await source.current()  # also what was exchanged before
    assert "administrator" in raised.value.public_message


# --- Signing in -------------------------------------------------------------------------------------------------------


def sign_in(client: Client, auth: FakeAuthServer) -> Any:
    page = client.post("/accounts/oidc/oidc/login/")
    back = urlsplit(consent_now(page["location"], "ada"))
    return client.get(f"{back.path}?{back.query}")


@pytest.mark.django_db
def test_a_sign_in_by_openid_connect_is_kept_sealed_and_in_one_place(settings: Any, bob: User) -> None:
    from allauth.socialaccount.models import SocialToken

    ada = Person("ada", "sub-ada", "Ada", bob.email)
    with serving(FakeAuthServer(people=(ada,))) as auth:
        configure(settings, auth)
        answer = sign_in(Client(), auth)
        assert answer.status_code == 302, answer.content
        row = SignInToken.objects.get(user=bob)
        assert auth.valid(row.tokens["access_token"]) is not None
        assert row.tokens["refresh_token"]
        assert row.provider == "oidc"
        assert row.expires_at is not None
        assert not SocialToken.objects.exists()
        sign_in(Client(), auth)
        again = SignInToken.objects.get(user=bob)
        assert again.version > row.version
        assert again.tokens != row.tokens
