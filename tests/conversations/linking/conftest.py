"""Servers that people sign in to, accounts at them, and people's browsers before the pages of a sign-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import AsyncClient

from accounts.models import Organization, User
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant

Enter = Callable[..., Any]


@pytest.fixture
def make_server(db: None) -> Callable[..., MCPServer]:
    """A server that is granted to its whole organization; by default one that people sign in to."""

    def make(organization: Organization, slug: str = "notes", **fields: Any) -> MCPServer:
        fields = {"title": slug.title(), "url": "http://127.0.0.1:9/mcp", "oauth": {}} | fields
        server: MCPServer = MCPServer.objects.create(organization=organization, slug=slug, **fields)
        ServerGrant.objects.create(server=server, whole_organization=True)
        return server

    return make


@pytest.fixture
def make_account(db: None) -> Callable[..., LinkedAccount]:
    """An account of `user` (None: of the organization) at `server`."""

    def make(server: MCPServer, user: User | None, name: str = "ada", **fields: Any) -> LinkedAccount:
        fields = {
            "binding": server.oauth_binding(),
            "issuer": "https://login.example",
            "scopes": ["notes:read"],
            "tokens": {"access_token": f"planted-access-{name}", "refresh_token": f"planted-refresh-{name}"},
        } | fields
        account: LinkedAccount = LinkedAccount.objects.create(
            organization=server.organization, server=server, user=user, name=name, **fields
        )
        return account

    return make


@pytest.fixture
def as_user(transactional_db: None) -> Enter:
    """A browser of a user (None: of a visitor); it shows what pages contain, and sends forms with their CSRF token."""

    async def enter(user: User | None) -> Browser:
        client = AsyncClient(enforce_csrf_checks=True)
        if user is not None:
            await client.aforce_login(user)
        return Browser(client)

    return enter


class Browser:
    """Pages and forms as one person's browser asks for them."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def get(self, path: str) -> Any:
        return await self.client.get(path)

    async def page(self, path: str) -> str:
        response = await self.get(path)
        assert response.status_code == 200, response.content
        return str(response.content.decode())

    async def post(self, path: str, **values: Any) -> Any:
        token = "t" * 32
        self.client.cookies["csrftoken"] = token
        return await self.client.post(path, {**values, "csrfmiddlewaretoken": token})
