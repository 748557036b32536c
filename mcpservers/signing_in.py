"""What a person is told who has to sign in at a server: the card's contents, found out where they are not known yet."""

from __future__ import annotations

import asyncio

from mcpservers.credentials import union
from mcpservers.errors import LinkError, SignInRequiredError
from mcpservers.models import MCPServer
from mcpservers.oauth.discovery import discover

FIND_SECONDS = 5.0  # for the server's metadata; without them the card names no host


async def completed(error: SignInRequiredError, server: MCPServer) -> SignInRequiredError:
    """`error` with the host that the person will see and with what is asked for at first.

    What the server just said (`error.challenge`) goes to the discovery, so that beginning finds it known. One that
    no longer takes an account may have moved to another issuer since: its metadata are read anew.
    """
    try:
        async with asyncio.timeout(FIND_SECONDS):
            found = await discover(server, challenge=error.challenge, fresh=error.reason in ("refused", "expired"))
    except (LinkError, TimeoutError):
        return error  # the page where the sign-in begins says what is wrong
    error.host = error.host or found.host
    if error.reason != "insufficient_scope":
        error.scopes = union(error.scopes, found.scopes)
    return error
