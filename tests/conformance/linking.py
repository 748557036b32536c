"""Our client as the suite's `auth/*` scenarios drive it: a person who signs in where that is asked, then goes on.

The suite's authorization servers ask nobody: they send the browser back at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import httpx2
from django.conf import settings

from accounts.actors import Actor
from chatui.rows import in_rows
from mcpservers import catalogue, connections
from mcpservers.catalogue import OfferedTool, WantedServer, offered_to
from mcpservers.credentials import sign_in_of
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, SignInToken
from mcpservers.oauth import flow, signins
from mcpservers.oauth.exchange import OPERATOR
from mcpservers.outcomes import ToolOutcome
from tests.conformance.driver import arguments_of, call, make_server
from tests.fakes.authpages import query_of

MOST_SIGN_INS = 3  # a person's patience
DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the client that auth/basic-cimd expects


async def drive(actor: Actor, url: str, name: str, context: Mapping[str, Any], revision: str) -> str:
    """Play one scenario: list the tools of the server at `url`, call each, sign in whenever that is wanted."""
    server = await in_rows(make_server, actor, url, oauth=configured(name, context), obo_author=OPERATOR)
    person = Person(actor, server)
    try:
        if "idp_issuer" in context:
            await in_rows(_sign_in_here, actor, context)
        for tool in await person.tools():
            await person.call(tool)
    except LinkError as error:
        person.said.append(f"not linked: {error.reason}: {error.public_message} ({error.for_admin})")
    finally:
        await catalogue.aclose()
        await connections.aclose()
    return "\n".join(person.said)


def configured(name: str, context: Mapping[str, Any]) -> dict[str, Any] | None:
    """What an administrator enters for a scenario; None, as discovered, where that suffices."""
    given = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    match name:
        case "auth/client-credentials-basic":
            return given | {"grant": "client_credentials", "auth_method": "client_secret_basic"}
        case "auth/client-credentials-jwt":
            key = {"private_key": context["private_key_pem"], "key_algorithm": context["signing_algorithm"]}
            return given | key | {"grant": "client_credentials"}
        case "auth/wif-jwt-bearer":
            return given | {"assertion": context["valid_jwt"], "grant": "jwt-bearer"}
        case "auth/2025-03-26-oauth-endpoint-fallback":
            return {"legacy_endpoints": True}
        case "auth/cross-app-access-complete-flow" | "auth/enterprise-managed-authorization":
            return given | {"obo": {"grant": "id-jag"}}
    return given or None


def _sign_in_here(actor: Actor, context: Mapping[str, Any]) -> None:
    """The actor has signed in to this product at the company that a scenario brings along."""
    app = {
        "provider_id": "company",
        "name": "Company",
        "client_id": context["idp_client_id"],
        "secret": "",
        "settings": {"server_url": context["idp_issuer"]},
    }
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}  # for this test: the fixture puts it back
    signins._metadata.clear()
    tokens: Any = {"access_token": "not asked for", "id_token": context["idp_id_token"]}
    SignInToken.objects.create(user_id=actor.user_id, provider="company", tokens=tokens)


class Person:
    """Somebody with a browser, who allows whatever is asked for. `said` tells what happened, for a reader."""

    def __init__(self, actor: Actor, server: MCPServer) -> None:
        self._actor, self._server = actor, server
        self._browser = secrets.token_urlsafe(16)
        self.sign_ins = 0
        self.said: list[str] = []

    async def tools(self) -> list[OfferedTool]:
        """The tools that are offered, after a sign-in if that is what is missing."""
        offer = await offered_to(self._actor, [WantedServer(self._server.pk)])
        while (where := next((each.sign_in for each in offer.problems if each.sign_in), None)) is not None:
            if not await self.sign_in(where.url):
                break
            offer = await offered_to(self._actor, [WantedServer(self._server.pk)])
        self.said.append(f"offered: {[tool.name for tool in offer.tools]}; {[each.message for each in offer.problems]}")
        return list(offer.tools)

    async def call(self, tool: OfferedTool) -> ToolOutcome:
        """The outcome, after as many sign-ins as it wants and a person makes."""
        while True:
            arguments = arguments_of(tool.definition.input_schema)
            outcome = await call(self._actor, self._server, tool.name, arguments, tool)
            self.said.append(f"{tool.name}: {outcome.status}: {outcome.text}")
            if outcome.sign_in is None:
                return outcome
            if not await self.sign_in(sign_in_of(self._actor.organization_slug, outcome.sign_in).url):
                return outcome

    async def sign_in(self, url: str) -> bool:
        """Do what the page at `url` of ours does: link an account, or one again. False after too many."""
        if self.sign_ins == MOST_SIGN_INS:
            return False
        self.sign_ins += 1
        asked = query_of(url)
        begun = await flow.begin(
            self._actor,
            self._server.pk,
            browser=self._browser,
            account_id=UUID(asked["account"]) if "account" in asked else None,
            scopes=asked.get("scopes", "").split(),
        )
        query = await _followed(begun.url)
        done = await flow.complete(self._actor.user_id, query, browser=self._browser)
        self.said.append(f"linked {done.account!r} for {begun.scopes}")
        return True


async def _followed(url: str) -> dict[str, str]:
    """What a browser brings back from the authorization server."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url)
    assert answer.has_redirect_location, answer.text
    return query_of(answer.headers["location"])
