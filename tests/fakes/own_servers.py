"""People's own servers on loopback, where no such server may be: the one seam at which tests let them.

Import the fixture `within_reach` where it is used.
"""

from __future__ import annotations

from typing import Any

import pytest

from mcpservers.models import MCPServer

__all__ = ["within_reach"]


@pytest.fixture
def within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the settings of the tests allow is allowed to people's own servers, too."""

    def allowances(server: MCPServer) -> tuple[str, ...] | None:
        return ()

    monkeypatch.setattr(MCPServer, "allowances", property(allowances))


def own(user: Any, organization: Any, url: str = "https://notes.example.org/mcp", **fields: Any) -> MCPServer:
    """A stored server of `user`, whom the organization lets have one."""
    organization.own_servers = "members"
    organization.save(update_fields=["own_servers"])
    fields = {"slug": "my-notes", "title": "My notes"} | fields
    server: MCPServer = MCPServer.objects.create(organization=organization, owner=user, url=url, **fields)
    return server
