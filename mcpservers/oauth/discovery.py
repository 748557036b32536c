"""Where the accounts of an MCP server come from: its own metadata (RFC 9728), its issuer's (RFC 8414, OIDC)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from chatui.netguard import Extra
from chatui.rows import in_rows, writing
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, OAuthDiscovery, Transport
from mcpservers.oauth import metadata
from mcpservers.oauth.challenges import Challenge, parse_challenge, scopes_in
from mcpservers.oauth.metadata import Discovered
from mcpservers.oauth.web import Answer, Web

SECONDS = 30.0  # for all documents together
LATELY_SECONDS = 3.0  # for metadata to be read anew before a token is fetched; older ones are used then
KEPT_SECONDS = 3600.0  # where a document does not say how long it holds
LEAST_SECONDS, MOST_SECONDS = 60.0, 86400.0
_PROBE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "chatui", "version": "0"},
    },
}
_ACCEPT = {"accept": "application/json, text/event-stream"}
_CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})


async def discover(server: MCPServer, *, challenge: Challenge | None = None, fresh: bool = False) -> Discovered:
    """The metadata of `server`, from its row while that holds, else from the network; stored.

    `challenge` is what the server just said, if it did. Raises `LinkError` with what an admin can do.
    """
    if not fresh:
        kept = await in_rows(_kept, server)
        if kept is not None and (challenge is None or challenge.resource_metadata in ("", kept.resource_metadata)):
            return await _as_challenged(server, kept, challenge)
    try:
        async with asyncio.timeout(SECONDS), Web(extra=server.allowances) as web:
            found, seconds = await _found(web, server, challenge)
    except TimeoutError:
        host = metadata.origin_of(server.url)
        message = f"The sign-in of {host} could not be found within {SECONDS:g} s. Try again later."
        raise LinkError("timeout", message) from None
    await in_rows(_store, server, found, seconds)
    return found


async def lately(server: MCPServer) -> Discovered:
    """As `discover`, for tokens that cannot wait: what is ill at the moment was right before. Raises `LinkError`."""
    stale = await in_rows(known, server)
    if stale is None:
        return await discover(server)
    try:
        async with asyncio.timeout(LATELY_SECONDS):
            return await discover(server)
    except (LinkError, TimeoutError):
        return stale


async def _as_challenged(server: MCPServer, kept: Discovered, challenge: Challenge | None) -> Discovered:
    """`kept` with what the server now says: that it takes bound tokens, and the scopes that it names for a start.

    Those of a step-up are for that alone.
    """
    if challenge is None:
        return kept
    changed = kept
    if challenge.scope and challenge.error != "insufficient_scope" and not configured_scopes(server):
        changed = replace(changed, scopes=challenge.scope)
    if not kept.dpop and _binds_tokens(server.oauth or {}, None, kept.dpop_algorithms, challenge):
        changed = replace(changed, dpop=True)
    if changed != kept:
        await in_rows(_update, server, changed)
    return changed


# --- On the network -----------------------------------------------------------------------------------------------


async def _found(web: Web, server: MCPServer, challenge: Challenge | None) -> tuple[Discovered, float]:
    oauth, url = server.oauth or {}, metadata.literal_part(server.url)
    if challenge is None:
        challenge = await _challenge(web, server)
    own, where, seconds = await _own_metadata(web, url, challenge)
    resource = _resource(oauth, own, url)
    issuers = [oauth["issuer"]] if oauth.get("issuer") else metadata.issuers_in(own) if own is not None else []
    if oauth.get("token_endpoint"):
        found, held = _configured_endpoints(oauth, issuers), MOST_SECONDS
    else:
        places = issuers or [metadata.origin_of(url)]
        found, held = await _issuer_metadata(web, places, oauth, guessed=not issuers, extra=server.allowances)
    scopes = configured_scopes(server) or challenge.scope or scopes_in((own or {}).get("scopes_supported"))
    said = Discovered(resource=resource, scopes=scopes, resource_metadata=where, **found)
    said = replace(said, dpop=_binds_tokens(oauth, own, said.dpop_algorithms, challenge))
    return said, max(LEAST_SECONDS, min(seconds, held, MOST_SECONDS))


def configured_scopes(server: MCPServer) -> tuple[str, ...]:
    """The scopes that an admin entered; they replace those that the server names."""
    return scopes_in((server.oauth or {}).get("scopes"))


def _binds_tokens(
    oauth: Mapping[str, Any], own: Mapping[str, Any] | None, algorithms: Iterable[str], challenge: Challenge
) -> bool:
    wanted = oauth.get("dpop")
    if isinstance(wanted, bool):
        return wanted
    return metadata.binds_tokens(own or {}, algorithms, challenged=challenge.dpop)


def _resource(oauth: Mapping[str, Any], own: Mapping[str, Any] | None, url: str) -> str:
    wanted = oauth.get("resource")
    if isinstance(wanted, str) and wanted:
        return wanted
    resource = metadata.resource_in(own, url) if own is not None else metadata.canonical_resource(url)
    return "" if wanted is False else resource


async def _challenge(web: Web, server: MCPServer) -> Challenge:
    """What the server says to somebody without a token. It may say nothing: the well-known places remain."""
    url = server.url
    if "{{" in url or "${" in url:
        return Challenge()
    try:
        if server.transport == Transport.SSE:
            answer = await web.head_of_get(url, _ACCEPT)
        else:
            answer = await web.head_of_post(url, _PROBE, _ACCEPT)
    except LinkError as error:
        if error.reason == "address_refused":
            raise
        return Challenge()
    return parse_challenge(answer.headers.get("www-authenticate", "")) if answer.status == 401 else Challenge()


async def _own_metadata(web: Web, url: str, challenge: Challenge) -> tuple[dict[str, Any] | None, str, float]:
    """The server's own metadata, where they were, and for how many seconds they hold; None where there are none."""
    places = list(dict.fromkeys([challenge.resource_metadata, *metadata.resource_metadata_urls(url)]))
    for place in filter(None, places):
        answer = await _get(web, place)
        document = answer.json() if answer is not None and answer.status == 200 else None
        if document is not None and answer is not None:
            return document, place if place == challenge.resource_metadata else "", _seconds(answer)
    return None, "", KEPT_SECONDS


async def _issuer_metadata(
    web: Web, issuers: Iterable[str], oauth: Mapping[str, Any], *, guessed: bool, extra: Extra
) -> tuple[dict[str, Any], float]:
    tried: list[str] = []
    refusal: LinkError | None = None
    for issuer in issuers:
        tried.append(issuer)
        metadata.checked_endpoint("issuer", issuer, extra)
        for place in metadata.issuer_metadata_urls(issuer):
            answer = await _get(web, place)
            document = answer.json() if answer is not None and answer.status == 200 else None
            if document is None or answer is None:
                continue
            try:
                allow = bool(oauth.get("allow_missing_pkce"))
                endpoints = metadata.endpoints_in(document, issuer, allow_missing_pkce=allow, extra=extra)
                return endpoints, _seconds(answer)
            except LinkError as error:
                refusal = refusal or error  # perhaps the other document of this issuer can be used
    if refusal is not None:
        raise refusal
    if guessed and oauth.get("legacy_endpoints"):
        return _default_endpoints(tried[0]), KEPT_SECONDS
    raise _nothing(tried, guessed)


def _nothing(tried: list[str], guessed: bool) -> LinkError:
    hosts = ", ".join(tried)
    if guessed:
        detail = (
            f"{hosts} tells nothing of a sign-in: neither its own metadata (RFC 9728) nor an authorization server's "
            "(RFC 8414). If it has one, enter its “issuer”, or “authorization_endpoint” and “token_endpoint”, in the "
            "server's OAuth; a server of the protocol of 2025-03-26 may want “legacy_endpoints”."
        )
    else:
        detail = f"There is no metadata of the authorization server at {hosts} (RFC 8414, OpenID Connect Discovery)."
    message = "It could not be found out where to sign in to this server. Tell an administrator."
    return LinkError("no_metadata", message, for_admin=detail)


async def _get(web: Web, url: str) -> Answer | None:
    """The answer; None where there is certainly no document. Raises `LinkError` for an ill or a treacherous server."""
    try:
        answer = await web.get(url)
    except LinkError as error:
        if error.reason == "redirected":  # to a page for people, as a rule
            return None
        raise
    if answer.status == 429 or answer.status >= 500:
        detail = f"{answer.url} answers with HTTP {answer.status}."
        message = "The sign-in of this server does not work at the moment. Try again later."
        raise LinkError("unreachable", message, for_admin=detail)
    return answer


def _seconds(answer: Answer) -> float:
    """How long a document holds, as it says (RFC 9111, 5.2.2)."""
    said = answer.headers.get("cache-control", "").lower()
    if "no-store" in said or "no-cache" in said:
        return LEAST_SECONDS
    age = re.search(r"max-age\s*=\s*\"?(\d{1,9})", said)
    return float(age[1]) if age else KEPT_SECONDS


def _configured_endpoints(oauth: Mapping[str, Any], issuers: list[str]) -> dict[str, Any]:
    token = metadata.checked_endpoint("token_endpoint", oauth["token_endpoint"])
    authorization = oauth.get("authorization_endpoint")
    found: dict[str, Any] = {
        "issuer": issuers[0] if issuers else metadata.origin_of(token),
        "token_endpoint": token,
        "authorization_endpoint": "",
        "revocation_endpoint": "",
    }
    for name in ("authorization_endpoint", "revocation_endpoint"):
        if oauth.get(name):
            found[name] = metadata.checked_endpoint(name, oauth[name])
    if (
        not authorization
        and (oauth.get("grant") or "authorization_code") == "authorization_code"
        and not oauth.get("obo")
    ):
        detail = "“authorization_endpoint” is missing beside “token_endpoint” in the server's OAuth."
        raise LinkError("bad_metadata", "Where to sign in is not configured. Tell an administrator.", for_admin=detail)
    return found


def _default_endpoints(origin: str) -> dict[str, Any]:
    """MCP 2025-03-26, fallbacks for servers without metadata discovery; on an admin's word alone."""
    return {
        "issuer": origin,
        "authorization_endpoint": metadata.checked_endpoint("authorization_endpoint", f"{origin}/authorize"),
        "token_endpoint": f"{origin}/token",
        "registration_endpoint": f"{origin}/register",
        "pkce": False,
        "warnings": (
            "The server tells nothing of its sign-in; its endpoints are those of the protocol of 2025-03-26.",
        ),
    }


# --- Rows ---------------------------------------------------------------------------------------------------------


def known(server: MCPServer) -> Discovered | None:
    """What is stored of the server's metadata, however old; for pages. A row function without network."""
    return _read(server)


def _kept(server: MCPServer) -> Discovered | None:
    return _read(server, expires_at__gt=timezone.now())


def _read(server: MCPServer, **narrow: Any) -> Discovered | None:
    rows = OAuthDiscovery.objects.as_system().filter(server=server, binding=server.oauth_binding(), **narrow)
    row = rows.first()
    return told_by(row, server) if row is not None else None


def told_by(row: OAuthDiscovery, server: MCPServer) -> Discovered:
    """What a row of `server` says, with the scopes and the `dpop` that the definition names now."""
    found, dpop = Discovered.from_json(row.document), (server.oauth or {}).get("dpop")
    if scopes := configured_scopes(server):
        found = replace(found, scopes=scopes)
    return replace(found, dpop=dpop) if isinstance(dpop, bool) else found


def _store(server: MCPServer, found: Discovered, seconds: float) -> None:
    now = timezone.now()
    values = {
        "binding": server.oauth_binding(),
        "document": found.as_json(),
        "fetched_at": now,
        "expires_at": now + timedelta(seconds=seconds),
    }
    with writing():
        if MCPServer.objects.as_system().filter(pk=server.pk).exists():  # deleted meanwhile
            fields = {"organization_id": server.organization_id, **values}
            OAuthDiscovery.objects.as_system().update_or_create(server_id=server.pk, defaults=fields)


def _update(server: MCPServer, found: Discovered) -> None:
    rows = OAuthDiscovery.objects.as_system().filter(server=server, binding=server.oauth_binding())
    rows.update(document=found.as_json())


async def mark_needs_oauth(server_id: UUID) -> bool:
    """Remember that a server without `oauth` in its definition wants a sign-in, so that its scope becomes *user*.

    For whoever met a 401 of a server that has metadata. False, and nothing is stored, where the definition
    sends a credential of its own: then that is what was refused.
    """
    return await in_rows(_mark, server_id)


def _mark(server_id: UUID) -> bool:
    with writing():
        server = MCPServer.objects.as_system().filter(pk=server_id).first()
        if server is None or server.oauth is not None or server.signs_in or _sends_credentials(server):
            return False
        binding = server.oauth_binding()
        return bool(MCPServer.objects.as_system().filter(pk=server_id, url=server.url).update(needs_oauth=binding))


def _sends_credentials(server: MCPServer) -> bool:
    names = {name.lower() for name in server.headers}
    return bool(server.variables) or bool(names & _CREDENTIAL_HEADERS)
