"""The pages of the fake authorization server: the authorization request, the consent page, and a browser's part."""

from __future__ import annotations

import html
import re
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2
from aiohttp import web

from tests.fakes.authstate import JSON, Client, OAuthRefusal, bent, within, words

if TYPE_CHECKING:
    from tests.fakes.authserver import FakeAuthServer, Heard

PAGE = """<!doctype html><title>Allow access?</title><h1>Allow access?</h1>
<p>{client} wants to reach {resource} with: {scopes}</p>
<form method="post" action="{action}"><input type="hidden" name="request" value="{request}">
{people}<button name="decision" value="allow">Allow</button><button name="decision" value="deny">Deny</button></form>"""
CODE_SECONDS = 60


# --- The server's part ------------------------------------------------------------------------------------------------


async def authorize(heard: Heard) -> web.StreamResponse:
    """RFC 6749 4.1.1. What cannot be trusted is answered with a page, everything else by a redirect."""
    server, asked = heard.server, heard.query
    try:
        client = await find_client(server, asked.get("client_id", ""))
        if asked.get("redirect_uri") not in client.redirect_uris and client.redirect_uris:
            raise OAuthRefusal("invalid_request", "redirect_uri is not registered")
        urlsplit(asked["redirect_uri"])
    except (OAuthRefusal, KeyError) as refusal:
        return web.Response(status=400, text=f"<h1>Refused</h1><p>{refusal}</p>", content_type="text/html")
    try:
        check(server, asked)
    except OAuthRefusal as refusal:
        return _redirect(server, asked, {"error": refusal.error, "error_description": refusal.description})
    if server.auto_consent:
        return _allowed(server, asked, server.auto_consent)
    request = secrets.token_urlsafe(8)
    server.pending[request] = asked
    people = "".join(
        f'<label><input type="radio" name="user" value="{person.username}">{html.escape(person.name)}</label>'
        for person in server.people
    )
    page = PAGE.format(
        client=html.escape(str(client.metadata.get("client_name") or client.id)),
        resource=html.escape(asked.get("resource", "")),
        scopes=html.escape(asked.get("scope", "")),
        action=server.url("consent"),
        request=request,
        people=people,
    )
    return web.Response(text=page, content_type="text/html", headers={"Referrer-Policy": "no-referrer"})


def check(server: FakeAuthServer, asked: dict[str, str]) -> None:
    """Raise `OAuthRefusal` for a request that OAuth 2.1 with PKCE and RFC 8707 does not allow."""
    if asked.get("response_type") != "code":
        raise OAuthRefusal("unsupported_response_type", "only code")
    if asked.get("code_challenge_method") != "S256" or not re.fullmatch(
        r"[A-Za-z0-9_-]{43}", asked.get("code_challenge", "")
    ):
        raise OAuthRefusal("invalid_request", "PKCE with S256 is required")
    if not within(words(asked.get("scope")), server.scopes):
        raise OAuthRefusal("invalid_scope", "unknown scope")
    check_resource(server, asked.get("resource", ""))


def check_resource(server: FakeAuthServer, resource: str) -> None:
    if server.require_resource and not resource:
        raise OAuthRefusal("invalid_target", "resource is required")
    if resource and server.resources is not None and resource not in server.resources:
        raise OAuthRefusal("invalid_target", f"unknown resource {resource}")


async def find_client(server: FakeAuthServer, client_id: str) -> Client:
    """A known client, or one whose metadata document is read at its address. Raises `OAuthRefusal`."""
    client = server.memory.clients.get(client_id)
    if client is not None:
        return client
    if not (server.documents and client_id.startswith(("https://", "http://"))):
        raise OAuthRefusal("invalid_client", "unknown client", 401)
    document = server.planted.get(client_id) or await _document(client_id)
    if document.get("client_id") != client_id:
        raise OAuthRefusal("invalid_client", "the document names another client", 401)
    client = Client(
        id=client_id,
        auth_method=document.get("token_endpoint_auth_method", "none"),
        redirect_uris=tuple(document.get("redirect_uris", ())),
        source="document",
        metadata=document,
    )
    server.memory.clients[client_id] = client
    return client


async def _document(url: str) -> JSON:
    async with httpx2.AsyncClient(trust_env=False) as http:
        try:
            answer = await http.get(url)
            document = answer.raise_for_status().json()
        except (httpx2.HTTPError, ValueError) as error:
            raise OAuthRefusal("invalid_client", f"no document at {url}: {error}", 401) from None
    return document if isinstance(document, dict) else {}


async def decide(heard: Heard) -> web.StreamResponse:
    """What the person said on the consent page."""
    server = heard.server
    asked = server.pending.pop(heard.form.get("request", ""), None)
    if asked is None or heard.method != "POST":
        return web.Response(status=400, text="<h1>This page has expired</h1>", content_type="text/html")
    if heard.form.get("decision") != "allow":
        return _redirect(server, asked, {"error": "access_denied", "error_description": "The person said no"})
    return _allowed(server, asked, heard.form.get("user", ""))


def _allowed(server: FakeAuthServer, asked: dict[str, str], username: str) -> web.StreamResponse:
    person = next((person for person in server.people if person.username == username), None)
    if person is None:
        return web.Response(status=400, text="<h1>Choose an account</h1>", content_type="text/html")
    code = server.memory.issue(
        "code",
        seconds=CODE_SECONDS,
        client_id=asked["client_id"],
        person=person,
        scopes=words(asked.get("scope")) or server.default_scopes,
        resource=asked.get("resource", ""),
        redirect_uri=asked["redirect_uri"],
        challenge=asked["code_challenge"],
        nonce=asked.get("nonce", ""),
    )
    return _redirect(server, asked, {"code": code.value})


def _redirect(server: FakeAuthServer, asked: dict[str, str], said: dict[str, str]) -> web.StreamResponse:
    """RFC 9207: every answer names its issuer."""
    said = said | {"state": asked.get("state"), "iss": server.issuer}
    query = {name: value for name, value in bent(said, server.redirect_changes).items() if value is not None}
    uri = asked["redirect_uri"]
    location = f"{uri}{'&' if urlsplit(uri).query else '?'}{urlencode(query)}"
    return web.Response(status=302, headers={"Location": location})


# --- The browser's part -----------------------------------------------------------------------------------------------


class ConsentRefusedError(AssertionError):
    """The authorization server showed a page instead of going on; the text is what it says."""


async def consent(url: str, user: str = "ada", allow: bool = True) -> str:
    """Open `url` as a browser does, choose an account, allow or deny; the address that it redirects to."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url)
        while answer.has_redirect_location and _same_origin(url, answer):
            answer = await http.get(_location(answer))
        if not answer.has_redirect_location:
            place, data = _form(answer, user, allow)
            answer = await http.post(place, data=data)
    return _location(answer)


def consent_now(url: str, user: str = "ada", allow: bool = True) -> str:
    """See `consent`, for synchronous tests."""
    with httpx2.Client(trust_env=False) as http:
        answer = http.get(url)
        while answer.has_redirect_location and _same_origin(url, answer):
            answer = http.get(_location(answer))
        if not answer.has_redirect_location:
            place, data = _form(answer, user, allow)
            answer = http.post(place, data=data)
    return _location(answer)


def _form(page: httpx2.Response, user: str, allow: bool) -> tuple[str, dict[str, str]]:
    """Where the page's form goes, by default where the page came from, and what a person enters."""
    action = re.search(r'<form[^>]* action="([^"]+)"', page.text)
    request = re.search(r'name="request" value="([^"]+)"', page.text)
    if page.status_code != 200 or request is None:
        raise ConsentRefusedError(f"{page.status_code}: {page.text[:500]}")
    data = {"request": request[1], "user": user, "decision": "allow" if allow else "deny"}
    return urljoin(str(page.url), html.unescape(action[1]) if action else ""), data


def _same_origin(url: str, answer: httpx2.Response) -> bool:
    return urlsplit(url)[:2] == urlsplit(_location(answer))[:2]


def _location(answer: httpx2.Response) -> str:
    if not answer.has_redirect_location:
        raise ConsentRefusedError(f"{answer.status_code}: {answer.text[:500]}")
    return urljoin(str(answer.url), answer.headers["location"])


def query_of(url: str) -> dict[str, str]:
    """The query of an address, such as the one that `consent` gives."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
