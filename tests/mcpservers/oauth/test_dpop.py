"""Proofs of possession (RFC 9449): what a proof says, and linking, renewing and calling with tokens that are bound."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from chatui.rows import in_rows
from mcpservers.credentials import Account
from mcpservers.errors import LinkError, ServerUnavailableError, SignInRequiredError
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import dpop, machine
from mcpservers.oauth.challenges import parse_challenge
from mcpservers.oauth.discovery import discover
from mcpservers.oauth.dpop import BoundToken, Nonces
from mcpservers.oauth.metadata import binds_tokens
from mcpservers.oauth.tokens import AccountTokens
from mcpservers.transports import target_of
from tests.fakes import proofs
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_targets import managed
from tests.mcpservers.oauth.conftest import Link, Make, tokens_of
from tests.mcpservers.oauth.resource import Resource

KEY = dpop.new_key()
URL = "https://mcp.example.org/mcp"


def opened(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a proof, whose signature is verified with the key in its header."""
    header = jwt.get_unverified_header(proof)
    return header, jwt.decode(proof, jwt.PyJWK(header["jwk"], "ES256"), ["ES256"])


# --- Proofs -----------------------------------------------------------------------------------------------------------


def test_a_proof_names_the_request_and_shows_the_public_key_alone() -> None:
    header, claims = opened(dpop.proof("POST", f"{URL}?session=1#part", key=KEY))
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    assert header["jwk"].keys() == {"kty", "crv", "x", "y"}
    assert (claims["htm"], claims["htu"]) == ("POST", URL)
    assert claims.keys() == {"jti", "htm", "htu", "iat"}


def test_a_proof_names_the_token_and_the_nonce() -> None:
    _, claims = opened(dpop.proof("GET", URL, key=KEY, access_token="at-1", nonce="n-1"))
    expected = base64.urlsafe_b64encode(hashlib.sha256(b"at-1").digest()).rstrip(b"=").decode()
    assert (claims["ath"], claims["nonce"]) == (expected, "n-1")


def test_no_two_proofs_are_the_same() -> None:
    assert len({opened(dpop.proof("GET", URL, key=KEY))[1]["jti"] for _ in range(20)}) == 20


def test_the_thumbprint_is_the_one_that_others_compute() -> None:
    header, _ = opened(dpop.proof("GET", URL, key=KEY))
    assert dpop.thumbprint(KEY) == proofs.thumbprint(header["jwk"])
    assert dpop.thumbprint(dpop.new_key()) != dpop.thumbprint(KEY)


def test_nonces_are_kept_for_each_origin_and_key() -> None:
    nonces, other = Nonces(), dpop.new_key()
    nonces.keep(f"{URL}?a=b", KEY, {"dpop-nonce": "n-1"})
    assert nonces.of("https://MCP.example.org/elsewhere", KEY) == "n-1"
    assert nonces.of("https://mcp.example.org:8443/mcp", KEY) == ""
    assert nonces.of("https://example.org/mcp", KEY) == ""
    assert nonces.of(URL, other) == ""
    nonces.keep(URL, KEY, {})
    nonces.keep(URL, KEY, {"dpop-nonce": "x" * 5000})
    assert nonces.of(URL, KEY) == "n-1"
    nonces.keep(URL, KEY, {"dpop-nonce": "n-2"})
    assert nonces.of(URL, KEY) == "n-2"


def test_only_so_many_nonces_are_kept() -> None:
    nonces = Nonces()
    for number in range(3000):
        nonces.keep(f"https://h{number}.example.org/", KEY, {"dpop-nonce": "n"})
    assert len(nonces._last) == 2000
    assert nonces.of("https://h2999.example.org/", KEY) == "n"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_a_bound_token_is_as_a_text_the_token_alone(token: str) -> None:
    bound = BoundToken(token, KEY)
    assert (str(bound), f"{bound}", repr(bound)) == (token, token, repr(token))
    assert bound == token


def test_bearer_tokens_need_no_cryptography() -> None:
    code = (
        "import sys; from mcpservers.oauth import dpop; dpop.token_in({'access_token': 'a'}); "
        "assert not {'jwt', 'cryptography'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Linking ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bound(auth: FakeAuthServer, resource: Resource) -> None:
    """Both servers know DPoP, and clients are public."""
    auth.dpop, auth.auth_methods, resource.challenge = True, ("none",), "DPoP"


@pytest.fixture
async def linked(bound: None, link: Link, server: MCPServer) -> LinkedAccount:
    return await link(server)


async def row_of(account: LinkedAccount) -> LinkedAccount:
    row: LinkedAccount = await LinkedAccount.objects.as_system().select_related("server").aget(pk=account.pk)
    return row


def sent_proofs(auth: FakeAuthServer) -> int:
    return sum("dpop" in heard.headers for heard in auth.requests_of("token"))


async def test_linked_tokens_are_bound_to_a_key_of_the_account(linked: LinkedAccount, auth: FakeAuthServer) -> None:
    key = linked.tokens["dpop_key"]
    token = await tokens_of(linked).current()
    assert isinstance(token, BoundToken)
    assert (token.key, linked.tokens["token_type"]) == (key, "DPoP")
    [refresh] = auth.memory.issued("refresh")
    assert [auth.memory.tokens[token].jkt, refresh.jkt] == [dpop.thumbprint(key)] * 2


async def test_each_link_has_a_key_of_its_own(linked: LinkedAccount, link: Link, server: MCPServer) -> None:
    again = await link(server, account_id=linked.pk)
    other = await link(server, "grace")
    assert again.pk == linked.pk != other.pk
    assert len({each.tokens["dpop_key"] for each in (linked, again, other)}) == 3


async def test_what_is_renewed_is_bound_to_the_same_key(linked: LinkedAccount, auth: FakeAuthServer) -> None:
    token = await tokens_of(linked).renewed(linked.tokens["access_token"])
    row = await row_of(linked)
    assert token == row.tokens["access_token"] != linked.tokens["access_token"]
    assert row.tokens["dpop_key"] == linked.tokens["dpop_key"]
    assert auth.memory.tokens[token].jkt == dpop.thumbprint(row.tokens["dpop_key"])


async def test_a_refresh_token_is_worth_nothing_with_another_key(linked: LinkedAccount) -> None:
    tokens = {**linked.tokens, "dpop_key": dpop.new_key()}
    await LinkedAccount.objects.as_system().filter(pk=linked.pk).aupdate(tokens=tokens)
    with pytest.raises(SignInRequiredError):
        await tokens_of(linked).renewed(linked.tokens["access_token"])
    assert (await row_of(linked)).tokens == {}


async def test_the_issuers_nonce_is_given_when_it_is_wanted(
    bound: None, link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.proofs.nonce = f"first of {auth.issuer}"
    account = await link(server)
    assert auth.count("token") == 2
    await tokens_of(account).renewed(account.tokens["access_token"])
    assert auth.count("token") == 3
    auth.proofs.nonce = f"second of {auth.issuer}"
    await LinkedAccount.objects.as_system().filter(pk=account.pk).aupdate(renewed_at=None)
    await tokens_of(account).renewed((await row_of(account)).tokens["access_token"])
    assert auth.count("token") == 5
    assert len(auth.proofs.refused) == 2
    assert len(auth.proofs.seen) == 5


@pytest.mark.parametrize("error", ["use_dpop_nonce", "invalid_dpop_proof"])
async def test_a_proof_that_is_not_taken_does_not_end_the_account(
    error: str, linked: LinkedAccount, auth: FakeAuthServer
) -> None:
    from tests.fakes import authfaults

    auth.on("token", authfaults.said({"error": error}, 400))
    with pytest.raises(ServerUnavailableError):
        await tokens_of(linked).renewed(linked.tokens["access_token"])
    row = await row_of(linked)
    assert (row.state, row.tokens) == ("ready", linked.tokens)
    assert error in row.last_error


async def test_with_a_nonce_the_client_proves_itself_anew(bound: None, make_server: Make, resource: Resource) -> None:
    auth, pair = resource.auth, rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    private = pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    auth.configure("robot", auth_method="private_key_jwt", key=public)
    auth.proofs.nonce = "wanted"
    oauth = {"grant": "client_credentials", "client_id": "robot", "private_key": private}
    server = await make_server(resource.url, oauth=oauth)
    account = await in_rows(machine.account_for, server)
    first = await AccountTokens.of(account).current()
    assert isinstance(first, BoundToken)
    assert auth.count("token") == 2
    await LinkedAccount.objects.as_system().filter(pk=account.pk).aupdate(renewed_at=None)
    second = await tokens_of(account).renewed(first)
    assert isinstance(second, BoundToken)
    assert (second.key, second != first) == (first.key, True)


async def test_who_it_is_is_asked_with_a_proof_too(
    bound: None, link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.token_changes = {"id_token": None}
    account = await link(await make_server(resource.url, oauth={"scopes": ["openid", "email"]}))
    assert account.name == "ada@notes.example"
    assert auth.last("userinfo").headers["authorization"] == f"DPoP {account.tokens['access_token']}"


# --- Who binds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenge", "said", "algorithms", "binds"),
    [
        ("DPoP", {}, ["ES256"], True),
        ("DPoP", {}, [], True),
        ("DPoP", {}, ["RS256"], False),
        ("DPoP", {}, ["none"], False),
        ('Bearer, DPoP algs="RS256 ES256"', {}, ["ES256"], True),
        ('DPoP algs="RS256"', {}, ["ES256"], False),
        ("Bearer", {}, ["ES256"], False),
        ("Bearer", {"dpop_bound_access_tokens_required": True}, ["ES256"], True),
        ("Bearer", {"dpop_bound_access_tokens_required": "yes"}, ["ES256"], False),
        ("Bearer", {"dpop_signing_alg_values_supported": ["ES256"]}, ["ES256"], True),
        ("DPoP", {"dpop_signing_alg_values_supported": ["RS256"]}, ["ES256"], False),
    ],
)
def test_tokens_are_bound_where_both_servers_take_a_key_of_ours(
    challenge: str, said: dict[str, Any], algorithms: list[str], binds: bool
) -> None:
    assert binds_tokens(said, algorithms, challenged=parse_challenge(challenge).dpop) is binds


async def test_an_issuer_that_could_is_not_asked_where_the_server_takes_bearer_tokens(
    auth: FakeAuthServer, link: Link, server: MCPServer
) -> None:
    auth.dpop = True
    assert (await link(server)).tokens.keys() == {"access_token", "refresh_token"}
    assert sent_proofs(auth) == 0


@pytest.mark.parametrize(("wanted", "challenge"), [(False, "DPoP"), (True, "Bearer")])
async def test_an_admin_has_the_last_word(
    wanted: bool, challenge: str, auth: FakeAuthServer, resource: Resource, server: MCPServer
) -> None:
    auth.dpop, resource.challenge = True, challenge
    assert (await discover(server)).dpop is not wanted
    server.oauth = {"dpop": wanted}
    assert (await discover(server)).dpop is wanted
    assert (await discover(server, fresh=True)).dpop is wanted


async def test_a_server_that_takes_bound_tokens_by_now_is_believed(
    auth: FakeAuthServer, resource: Resource, server: MCPServer
) -> None:
    auth.dpop = True
    assert not (await discover(server)).dpop
    asked = len(resource.asked)
    assert (await discover(server, challenge=parse_challenge('DPoP error="invalid_token"'))).dpop
    assert (await discover(server)).dpop
    assert len(resource.asked) == asked


async def test_a_server_that_gives_bearer_tokens_stays_with_them(
    bound: None, link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    """Its refresh tokens are bound all the same (RFC 9449, section 5)."""
    auth.token_changes = {"token_type": "Bearer"}
    account = await link(server)
    token = await tokens_of(account).renewed(account.tokens["access_token"])
    assert not isinstance(token, BoundToken)
    assert sent_proofs(auth) == auth.count("token") == 2
    assert auth.memory.issued("refresh")[-1].jkt == dpop.thumbprint(account.tokens["dpop_key"])


async def test_a_bound_token_that_was_not_asked_for_links_nothing(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.token_changes = {"token_type": "DPoP"}
    with pytest.raises(LinkError) as raised:
        await link(server)
    assert raised.value.reason == "bad_answer"


async def test_a_refresh_token_of_a_key_that_is_given_up_is_not_kept(
    linked: LinkedAccount, link: Link, auth: FakeAuthServer
) -> None:
    auth.refresh = "never"
    again = await link(linked.server, account_id=linked.pk)
    assert again.tokens.keys() == {"access_token", "dpop_key", "token_type"}


# --- Calling ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def protected(auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    auth.dpop = True
    async with ProtectedMCPServer(auth=auth, dpop=True) as server:
        server.proofs.nonce = auth.proofs.nonce = f"wanted by {server.url}"
        yield server


async def test_an_account_is_linked_used_and_renewed_with_proofs(
    protected: ProtectedMCPServer, link: Link, make_server: Make, actor: Any
) -> None:
    account = await link(await make_server(protected.url))
    target = target_of(account.server, actor, {}, account=Account.of(account), source=tokens_of(account))
    async with managed() as manager:
        for expected in (1, 2):
            async with manager.borrow(replace(target, source=tokens_of(account))) as connection:
                said = await connection.request("tools/call", {"name": "whoami"}, timeout=10)
            assert said["structuredContent"]["owner"] == "ada"
            assert len(protected.auth.memory.issued("access")) == expected
            protected.auth.memory.expire_all()
    assert protected.calls_of("ada") == ["whoami"] * 2
    assert protected.proofs.refused == ["another nonce is wanted"]
