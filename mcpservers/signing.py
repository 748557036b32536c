"""Signing the requests of one connection: the token goes to the server's own origin, and nowhere else.

A token that is refused is renewed and the request sent again: HTTP 401 says that the server did not run it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

import httpx2

from chatui.errors import ChatUIError
from chatui.netguard import origin
from mcpservers.credentials import TokenSource, union, wants_more
from mcpservers.errors import ServerUnavailableError, SignInRequiredError, account_refused
from mcpservers.oauth.challenges import Challenge, parse_challenge
from mcpservers.oauth.dpop import BoundToken
from mcpservers.oauth.proving import refused_proof, sign

if TYPE_CHECKING:
    from mcpservers.errors import SignInReason
    from mcpservers.transports import ConnectionTarget

RENEWALS = 2  # the second is of a token that was refused while it was new, which its source does not give again

# The source of the very call, which knows the account as its rows were just read; of the same account, or not used.
call_source: ContextVar[TokenSource | None] = ContextVar("call_source", default=None)

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class Signer:
    """Signs with what the connection's own target has, so that no request can get another one's token."""

    def __init__(self, target: ConnectionTarget) -> None:
        self._target = target
        self._origin = origin(httpx2.URL(target.url))
        self._has_nothing = not target.signs_in and target.source is None and target.late is None
        self._last = ""  # the token that was sent last

    async def send(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send the signed request, again with a new token after 401.

        Raises `SignInRequiredError` where only a person can help, `ServerUnavailableError` where only an admin can,
        and what the token's source raises.
        """
        if self._has_nothing or origin(request.url) != self._origin:
            return await send(request)
        await self._put_late_headers(request)
        source = self._source()
        if source is None:
            response = await send(request)
            return response if not self._target.signs_in else await self._judged(response)
        token = await source.current()
        for _ in range(RENEWALS):
            response = await send(self._signed(request, token))
            if response.status_code != 401 or (isinstance(token, BoundToken) and refused_proof(response)):
                return await self._judged(response)
            await response.aclose()
            token = await source.renewed(token)
        response = await send(self._signed(request, token))
        return await self._judged(response)

    async def send_once(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send the request with the token that was sent last; whatever comes of it, nobody is asked for another one."""
        if self._last and origin(request.url) == self._origin:
            self._signed(request, self._last)
        return await send(request)

    def _source(self) -> TokenSource | None:
        own, of_call = self._target.source, call_source.get()
        return of_call if own is not None and of_call is not None and of_call.key == own.key else own

    def _signed(self, request: httpx2.Request, token: str) -> httpx2.Request:
        self._target.sends(token)
        self._last = token
        sign(request, token)
        return request

    async def _put_late_headers(self, request: httpx2.Request) -> None:
        late = self._target.late
        if late is None:
            return
        for name, value in (await late.resolved())["headers"]:
            if request.headers.get(name) != value:
                self._target.sends(value, value.rpartition(" ")[2])
                request.headers[name] = value

    async def _judged(self, response: httpx2.Response) -> httpx2.Response:
        """The response, unless it says that a person has to sign in."""
        if response.status_code not in (401, 403):
            return response
        challenge = parse_challenge(response.headers.get("www-authenticate", ""))
        if response.status_code == 403 and not wants_more(challenge):
            return response
        await response.aclose()
        if response.status_code == 403:
            raise self._required("insufficient_scope", challenge)
        if challenge.refused_proof and isinstance(self._last, BoundToken):
            raise self._proof_refused(challenge)
        raise self._required("refused" if self._target.source is not None else "none", challenge)

    def _proof_refused(self, challenge: Challenge) -> ServerUnavailableError:
        """Neither another token nor a sign-in would help."""
        said = ": ".join(filter(None, (challenge.refused_proof, challenge.description)))
        message = f"“{self._target.title}” does not accept our proofs ({self._target.redact(said)})."
        return ServerUnavailableError(
            f"{message} A clock may be wrong, ours or its own, or a proxy changes its address (see “dpop”).",
            public_message=f"{message} Try again later, or tell an administrator.",
        )

    def _required(self, reason: SignInReason, challenge: Challenge) -> ChatUIError:
        target, account = self._target, self._target.account
        if not target.links:
            wants = f"It asks for more access ({' '.join(challenge.scope)})." if reason == "insufficient_scope" else ""
            return account_refused(target.title, wants, of_organization=account is not None)
        granted = account.scopes if account is not None and reason == "insufficient_scope" else ()
        error = SignInRequiredError(
            target.server_id,
            target.slug,
            target.title,
            reason=reason,
            scopes=union(granted, challenge.scope),
            account=account.name if account is not None else "",
            account_id=account.id if account is not None else None,
            new_scopes=[scope for scope in challenge.scope if scope not in granted] if granted else (),
        )
        error.challenge = challenge
        return error
