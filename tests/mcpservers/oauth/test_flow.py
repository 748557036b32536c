"""Linking in two requests, against a real authorization server."""

from __future__ import annotations

from mcpservers.models import MCPServer
from mcpservers.oauth.tokens import AccountTokens
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Link


async def test_an_account_is_linked_and_its_token_is_one_that_the_server_takes(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    account = await link(server)
    token = await AccountTokens.of(account).current()
    assert auth.valid(token) is not None
