"""Tokens that are bound to a key: every request of a connection has a proof of its own, in both eras and over SSE."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mcpservers.connections import ConnectionManager
from mcpservers.errors import ServerUnavailableError, SignInRequiredError
from mcpservers.oauth import dpop
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.mcp_protected import ProtectedMCPServer
from tests.fakes.mcp_server import Exchange
from tests.fakes.mcp_targets import managed
from tests.fakes.proofs import Proofs
from tests.fakes.wallet import Wallet
from tests.mcpservers.test_signing import KINDS, auth, manager, signed, whoami

__all__ = ["auth", "manager"]

KEY = dpop.new_key()


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest, auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    era = "modern" if request.param == "modern" else "legacy"
    async with ProtectedMCPServer(auth=auth, era=era, dpop=True) as server:
        server.kind = request.param
        yield server


def sent(server: ProtectedMCPServer) -> list[Exchange]:
    return [exchange for exchange in server.exchanges if exchange.headers.get("authorization")]


async def test_every_request_has_a_proof_of_its_own(server: ProtectedMCPServer) -> None:
    wallet = Wallet(server, bound_to=KEY)
    async with managed() as manager:
        assert (await whoami(manager, signed(server, wallet)))["owner"] == "ada"
        if server.kind == "legacy":
            await server.heard("GET")
    if server.kind == "legacy":
        await server.heard("DELETE")
    assert sent(server) == server.exchanges
    assert {exchange.headers["authorization"] for exchange in server.exchanges} == {f"DPoP {wallet.token}"}
    assert len(server.proofs.seen) == len(server.exchanges)
    assert server.proofs.refused == []
    assert wallet.asked.count("renewed") == 0


async def test_a_nonce_that_is_wanted_is_given_and_the_call_runs_once(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server, scopes=("notes:read", "notes:write"), bound_to=KEY)
    to = signed(server, wallet)
    server.proofs.nonce = f"first of {server.url}"
    assert await whoami(manager, to, "add_note") == {"added": 2}
    refused = len(server.proofs.refused)
    server.proofs.nonce = f"second of {server.url}"
    assert await whoami(manager, to, "add_note") == {"added": 3}
    assert await whoami(manager, to, "add_note") == {"added": 4}
    assert len(server.proofs.refused) == refused + 1
    assert server.calls_of("ada") == ["add_note"] * 3
    assert wallet.asked.count("renewed") == 0


async def test_a_server_that_takes_none_of_its_nonces_costs_no_token(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server, bound_to=KEY)
    to = signed(server, wallet)
    await whoami(manager, to)

    class Restless(Proofs):
        def check(self, *args: str) -> str:
            self.nonce = f"number {len(self.seen)}"
            return super().check(*args)

    server.proofs = Restless()
    with pytest.raises(ServerUnavailableError, match="nonce"):
        await whoami(manager, to)
    assert len(server.proofs.refused) >= 2
    assert wallet.asked.count("renewed") == 0
    server.proofs = Proofs()
    assert (await whoami(manager, to))["owner"] == "ada"


async def test_a_proof_that_is_not_accepted_costs_no_token_either(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server, bound_to=KEY)
    to = signed(server, wallet)
    await whoami(manager, to)
    server.known_as = "http://inside:8080"
    with pytest.raises(ServerUnavailableError, match=r"invalid_dpop_proof.*proxy"):
        await whoami(manager, to)
    assert server.proofs.refused == ["htu"]
    assert wallet.asked.count("renewed") == 0


async def test_a_refused_token_is_renewed_all_the_same(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    wallet = Wallet(server, bound_to=KEY)
    to = signed(server, wallet)
    await whoami(manager, to)
    server.auth.memory.expire_all()
    assert (await whoami(manager, to))["owner"] == "ada"
    assert wallet.asked.count("renewed") == 1


async def test_a_token_that_is_bound_no_longer_goes_without_a_proof(
    server: ProtectedMCPServer, manager: ConnectionManager
) -> None:
    wallet = Wallet(server, bound_to=KEY)
    to = signed(server, wallet)
    await whoami(manager, to)
    server.auth.memory.expire_all()
    wallet.bound_to = ""
    assert (await whoami(manager, to))["owner"] == "ada"
    assert server.exchanges[-1].headers["authorization"] == f"Bearer {wallet.token}"
    assert "dpop" not in server.exchanges[-1].headers


async def test_a_scope_that_is_missing_is_told_as_ever(server: ProtectedMCPServer, manager: ConnectionManager) -> None:
    wallet = Wallet(server, bound_to=KEY)
    with pytest.raises(SignInRequiredError) as raised:
        await whoami(manager, signed(server, wallet), "add_note")
    assert (raised.value.reason, raised.value.new_scopes) == ("insufficient_scope", ("notes:write",))


async def test_a_stolen_token_is_worth_nothing(
    server: ProtectedMCPServer, manager: ConnectionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = Wallet(server, bound_to=KEY)
    thief = Wallet(server, bound_to=dpop.new_key())
    for token in (dpop.BoundToken(owners.token, thief.bound_to), str(owners.token)):
        thief.token = token
        monkeypatch.setattr(thief, "_issued", lambda token=token: token)  # it has nothing but what it stole
        with pytest.raises(SignInRequiredError):
            await whoami(manager, signed(server, thief))
    assert server.seen == []
