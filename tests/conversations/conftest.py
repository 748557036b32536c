"""What tests of running turns need: a scripted endpoint, an agent on it, and a house that is closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from accounts.models import User
from agents.models import Agent
from tests.fakes.endpoint import Endpoint, endpoint

if TYPE_CHECKING:
    from conversations.supervisor import Supervisor

__all__ = ["endpoint"]


@pytest_asyncio.fixture
async def house(transactional_db: None) -> AsyncIterator[Supervisor]:
    """This process's supervisor; afterwards everything it owns is closed as at a shutdown."""
    from chatui import lifecycle
    from conversations import supervisor

    yield supervisor.current()
    supervisor.current().draining = False
    await supervisor.current().aclose(drain_seconds=0)
    await lifecycle.aclose()


@pytest.fixture
def agent(
    transactional_db: None, house: Any, endpoint: Endpoint, organization: Any, make_agent: Callable[..., Agent]
) -> Agent:
    return make_agent(organization, base_url=endpoint.base_url, instructions="You help.")


@pytest.fixture
def owner(transactional_db: None, agent: Agent, alice: User) -> User:
    """Alice, who has an agent."""
    return alice
