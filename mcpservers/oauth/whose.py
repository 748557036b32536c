"""Whose account a server is used with: what its definition says, in one place for every page and every call."""

from __future__ import annotations

from enum import StrEnum

from mcpservers.models import MCPServer
from mcpservers.oauth.config import MACHINE_GRANTS


class Whose(StrEnum):
    """Each person's own, one of the organization (no person signs in), the person's sign-in to this site, or none."""

    OWN = "own"
    ORGANIZATION = "organization"
    ON_BEHALF = "on_behalf"
    NOBODY = ""


def whose_account(server: MCPServer) -> Whose:
    """Whose account `server` is used with; for people's own they link it."""
    oauth = server.oauth or {}
    if oauth.get("grant") in MACHINE_GRANTS:
        return Whose.ORGANIZATION
    if oauth.get("obo") is not None:
        return Whose.ON_BEHALF
    return Whose.OWN if server.signs_in else Whose.NOBODY
