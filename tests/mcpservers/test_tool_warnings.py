"""What an admin and the operator of a file are told at once, though it is stored: here, of a server's address."""

from __future__ import annotations

from typing import Any

import pytest

from mcpservers.models import MCPServer
from mcpservers.tool_warnings import warnings_of


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://10.1.2.3/mcp", "its address is not a public one"),
        ("https://[::1]:8443/mcp", "its address is not a public one"),
        ("https://0x7f.1/mcp", "its address is not a public one"),
        ("http://mcp.example/{{TEAM}}", "http"),
    ],
)
def test_an_address_that_is_refused_is_told_with_what_an_operator_can_do(
    organization: Any, settings: Any, url: str, why: str
) -> None:
    settings.MCP_ALLOW_PRIVATE = ()
    server = MCPServer(organization=organization, slug="s", title="S", url=url)
    (told,) = warnings_of(server)
    assert told.startswith("URL: ")
    assert why in told
    assert "MCP_ALLOW_PRIVATE=" in told


def test_nothing_is_told_of_an_address_that_may_be_reached_or_is_none(organization: Any) -> None:
    for fields in ({"url": "https://mcp.example/mcp"}, {"url": "http://127.0.0.1:9/mcp"}, {"transport": "stdio"}):
        assert warnings_of(MCPServer(organization=organization, slug="s", title="S", **fields)) == []
