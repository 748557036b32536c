"""What a refusal teaches: that a server has accounts, though nobody said so in its definition."""

from __future__ import annotations

from chatui.errors import ChatUIError
from chatui.rows import in_rows
from mcpservers.errors import LinkError, RequestFailedError, ServerUnavailableError, SignInRequiredError
from mcpservers.models import MCPServer, Transport
from mcpservers.oauth import discovery
from mcpservers.oauth.challenges import parse_challenge
from mcpservers.transports import ConnectionTarget

# With these reasons there may be no metadata at all; with the others there are some, which cannot be used.
_TELLS_NOTHING = ("no_metadata", "unreachable", "timeout", "too_large", "redirected", "address_refused")


async def sign_in_for(target: ConnectionTarget, error: ChatUIError) -> SignInRequiredError | None:
    """The sign-in that `error` turns out to ask for; None where it does not.

    Of what connecting ended with that was asked by `sign_in_to_open`, once for all who waited.
    """
    if isinstance(error, SignInRequiredError):
        return error
    return await _learnt(target, error) if isinstance(error, RequestFailedError) else None


async def sign_in_to_open(target: ConnectionTarget, error: ChatUIError) -> SignInRequiredError | None:
    """The same of an `error` with which connecting ended: for the pool, which raises it instead."""
    return await _learnt(target, error) if isinstance(error, ServerUnavailableError) else None


async def _learnt(
    target: ConnectionTarget, error: ServerUnavailableError | RequestFailedError
) -> SignInRequiredError | None:
    if error.http_status != 401 or not await _has_accounts(target, error.challenge):
        return None
    return SignInRequiredError(target.server_id, target.slug, target.title)


async def _has_accounts(target: ConnectionTarget, www_authenticate: str) -> bool:
    """Whether the server that answered 401 to `target` tells where its accounts come from. It is remembered.

    From then on its scope is *user*, and everybody who uses it is asked to sign in; what is wrong with its metadata,
    if anything is, they learn there. Where the definition sends a credential of its own, that is what was refused.
    """
    credential = any(name.lower() == "authorization" for name, _ in target.headers)
    if target.signs_in or credential or target.transport is Transport.STDIO:
        return False
    server = await in_rows(MCPServer.objects.as_system().filter(pk=target.server_id).first)
    if server is None or server.definition_hash() != target.definition_hash:
        return False
    challenge = parse_challenge(www_authenticate)
    try:
        await discovery.discover(server, challenge=challenge, fresh=True)
    except LinkError as error:
        if error.reason in _TELLS_NOTHING and not challenge.resource_metadata:
            return False  # it tells nothing of accounts: what it said stands
    return await discovery.mark_needs_oauth(server.pk)
