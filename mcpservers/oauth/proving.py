"""Tokens on requests: a bearer token as it is, a bound one with a proof for each request that really leaves (DPoP).

A proof holds for one method and one address, so it is made where redirects have been followed already. A server that
wants its nonce in the proof has not run the request: it is sent once more (RFC 9449, section 9).
"""

from __future__ import annotations

import httpx2

from chatui.netguard import GuardedTransport
from mcpservers.oauth import dpop
from mcpservers.oauth.challenges import parse_challenge
from mcpservers.oauth.dpop import BoundToken

BOUND = "bound_token"  # a request's extension: the token that it has to be proved for


def sign(request: httpx2.Request, token: str) -> None:
    """Put the token on `request`, which a `ProvingTransport` sends."""
    if isinstance(token, BoundToken):
        request.headers["authorization"] = f"{dpop.SCHEME} {token}"
        request.extensions[BOUND] = token
        return
    request.headers["authorization"] = f"Bearer {token}"
    if request.extensions.pop(BOUND, None) is not None:  # it was refused, and is not bound any more
        request.headers.pop(dpop.PROOF, None)


class ProvingTransport(GuardedTransport):
    """The guarded transport for signed requests. To another origin goes neither token nor proof."""

    async def _hop(self, request: httpx2.Request) -> httpx2.Response:
        token = request.extensions.get(BOUND)
        if token is None or request.headers.get("authorization") != f"{dpop.SCHEME} {token}":
            return await super()._hop(request)
        response = await self._proved(request, token)
        if refused_proof(response) != dpop.WANTS_NONCE or dpop.NONCE not in response.headers:
            return response
        await response.aclose()
        return await self._proved(request, token)

    async def _proved(self, request: httpx2.Request, token: BoundToken) -> httpx2.Response:
        url = str(request.url)
        nonce = dpop.OF_SERVERS.of(url, token.key)
        request.headers[dpop.PROOF] = dpop.proof(request.method, url, key=token.key, access_token=token, nonce=nonce)
        response = await super()._hop(request)
        dpop.OF_SERVERS.keep(url, token.key, response.headers)
        return response


def refused_proof(response: httpx2.Response) -> str:
    """Why the proof was not taken, as an error of RFC 9449; "" where it was, or where the token is at fault."""
    said = response.headers.get("www-authenticate", "") if response.status_code == 401 else ""
    return parse_challenge(said).refused_proof if said else ""
