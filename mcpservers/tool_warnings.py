"""What of a server's definition cannot be meant as things are: an address that is refused, patterns without a tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accounts import rule_warnings
from chatui.netguard import AddressRefusedError, check_url
from mcpservers.approvals import matches
from mcpservers.known_tools import names_of
from mcpservers.models import MCPServer
from mcpservers.placeholders import PLACEHOLDER


def warnings_of(server: MCPServer) -> list[str]:
    """In words for an admin; a server whose tools were never listed has none of patterns without a tool."""
    names = names_of(server)
    grants = server.grants.exclude(tool="").order_by("tool").values_list("tool", flat=True)
    return [
        *_address(server),
        *rule_warnings.warnings(server.organization_id, server.rules, names),
        *(f"Read-only tools: {words}" for words in lost(server.read_only, names)),
        *(f"Grants: {words}" for words in lost(grants, names)),
    ]


def _address(server: MCPServer) -> list[str]:
    """Not refused where it is written: an operator may allow the address at any time."""
    if not server.url:
        return []
    try:
        check_url(PLACEHOLDER.sub("-", server.url), extra=server.allowances)
    except AddressRefusedError as error:
        return [f"URL: {error.public_message}"]
    return []


def lost(globs: Iterable[str], names: Collection[str]) -> list[str]:
    """The patterns that match none of the known `names`, each once, in words."""
    if not names:
        return []
    unmatched = [glob for glob in dict.fromkeys(globs) if not any(matches(glob, name) for name in names)]
    return [f"“{glob}” matches no tool that is known." for glob in unmatched]
