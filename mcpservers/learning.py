"""What a refusal teaches: that a server has accounts, though nobody said so in its definition."""

from __future__ import annotations

from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, Transport
from mcpservers.oauth import discovery
from mcpservers.oauth.challenges import parse_challenge
from mcpservers.transports import ConnectionTarget


async def has_accounts(target: ConnectionTarget, www_authenticate: str) -> bool:
    """Whether the server that answered 401 to `target` tells where its accounts come from. It is remembered.

    From then on its scope is *user*, and everybody who uses it is asked to sign in. Where the definition sends a
    credential of its own, that is what was refused.
    """
    credential = any(name.lower() == "authorization" for name, _ in target.headers)
    if target.signs_in or credential or target.transport is Transport.STDIO:
        return False
    server = await in_rows(MCPServer.objects.as_system().filter(pk=target.server_id).first)
    if server is None or server.definition_hash() != target.definition_hash:
        return False
    try:
        discovered = await discovery.discover(server, challenge=parse_challenge(www_authenticate), fresh=True)
    except LinkError:
        return False  # it tells nothing of accounts: what it said stands
    return await discovery.mark_needs_oauth(server.pk, discovered)
