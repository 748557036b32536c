"""A running server, and clients of the `openai` package with keys for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, DefaultAioHttpClient

from accounts.models import ApiKey, Organization, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.supervisor import Supervisor
from mcpservers.models import MCPServer
from tests.fakes.demo_server import ALLOWED, ASKED, DENIED, make_demo_server
from tests.served import served


@pytest_asyncio.fixture
async def base(house: Supervisor) -> AsyncIterator[str]:
    async with served() as address:
        yield address


@pytest_asyncio.fixture
async def connect(base: str) -> AsyncIterator[Callable[..., Any]]:
    """A client of the `openai` package with a key of a user in an organization."""
    clients: list[AsyncOpenAI] = []

    async def make(
        user: User, organization: Organization, scopes: tuple[str, ...] = ("chat",), **fields: Any
    ) -> AsyncOpenAI:
        _, key = await in_rows(ApiKey.issue, user=user, organization=organization, scopes=list(scopes), **fields)
        client = AsyncOpenAI(api_key=key, base_url=f"{base}/v1", max_retries=0, http_client=DefaultAioHttpClient())
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest_asyncio.fixture
async def client(connect: Callable[..., Any], owner: User, organization: Organization) -> AsyncOpenAI:
    made: AsyncOpenAI = await connect(owner, organization)
    return made


@pytest.fixture
def server(agent: Agent, organization: Organization) -> MCPServer:
    """Our demo server over stdio; adding a note would ask, drawing is denied, the rest is allowed."""
    server = make_demo_server(organization, ASKED, DENIED, ALLOWED)
    agent.servers.create(server=server)
    return server
