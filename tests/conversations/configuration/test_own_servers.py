"""What a configuration file says of people's own servers: who may have any, which agents use them, and none itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Organization, User
from agents.models import Agent
from conversations.configuration.exporting import export_configuration
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError
from mcpservers.models import MCPServer
from tests.fakes.own_servers import own

pytestmark = pytest.mark.django_db
Apply = Callable[..., Plan]


def acme(**changes: Any) -> dict[str, Any]:
    return {"organizations": {"acme": changes}}


def test_the_switches_are_set_kept_where_nothing_is_said_and_exported(apply: Apply) -> None:
    apply()
    assert "own_servers" not in export_configuration().text
    apply(acme(own_servers="members", agents={"helper": {"user_servers": True}}))
    assert Organization.objects.get().own_servers == "members"
    assert Agent.objects.as_system().get().user_servers
    assert "own_servers: members" in export_configuration().text
    assert "user_servers: true" in export_configuration().text
    apply()
    assert Organization.objects.get().own_servers == "members"
    with pytest.raises(ConfigurationError):
        apply(acme(own_servers="everybody"))


def test_peoples_own_are_neither_exported_nor_pruned_nor_named(apply: Apply) -> None:
    apply()
    bob = User.objects.get(username="bob")
    mine = own(bob, Organization.objects.get(), headers={"Authorization": "canary-own"})
    export = export_configuration()
    assert "my-notes" not in export.text
    assert "canary-own" not in str(export.secrets)
    apply(prune=True)
    apply({"organizations": {"acme": {"servers": ..., "agents": ...}}}, prune=True)
    assert list(MCPServer.objects.as_system()) == [mine]
    with pytest.raises(ConfigurationError):  # no agent has one
        apply(acme(agents={"helper": {"servers": ["my-notes"]}}))
    with pytest.raises(ConfigurationError):  # and no server of the organization has such a name
        apply(acme(servers={"my-tools": {"url": "https://tools.example.org/mcp"}}))
