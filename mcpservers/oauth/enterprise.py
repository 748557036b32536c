"""Enterprise-managed authorization: the word of a company's provider for a person, redeemed at a server's own issuer.

draft-ietf-oauth-identity-assertion-authz-grant, in two steps: the identity token of the person's sign-in goes to the
provider that issued it (RFC 8693); the assertion that comes back, which is good for one issuer, one resource and one
client, goes to that issuer (RFC 7523). Nobody is asked: the company decides at its provider.
"""

from __future__ import annotations

from chatui.rows import in_rows
from mcpservers.models import MCPServer
from mcpservers.oauth import client_auth, signins
from mcpservers.oauth.discovery import discover
from mcpservers.oauth.grants import EXCHANGE, JWT_BEARER, Granted, request_token
from mcpservers.oauth.signins import SignIn
from mcpservers.oauth.web import Web

GRANT = "id-jag"  # as `oauth.obo.grant` names it
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def redeem(server: MCPServer, sign_in: SignIn, scope: str) -> Granted:
    """A token for `server` that stands for the person of `sign_in`, which has an identity token.

    Raises `GrantRefusedError` of either step, `LinkError`.
    """
    discovered = await discover(server)
    asked = {
        "grant_type": EXCHANGE,
        "subject_token": sign_in.tokens["id_token"],
        "subject_token_type": ID_TOKEN,
        "requested_token_type": ID_JAG,
        "audience": discovered.issuer,
        "resource": discovered.resource,
        "scope": scope,
    }
    async with Web(extra=[sign_in.provider.allowance]) as web:
        said = await signins.metadata_of(web, sign_in.provider)
        known = signins.credentials_of(sign_in.provider, said)
        form = {name: value for name, value in asked.items() if value}
        # RFC 8693, 2.2.1: what is no access token has no type as one.
        assertion = await request_token(
            web, said["token_endpoint"], said["issuer"], known, form, kinds=("n_a", "bearer")
        )
    credentials = await in_rows(_credentials, server, discovered.auth_methods)
    form = {"grant_type": JWT_BEARER, "assertion": assertion.access_token}
    form |= {name: value for name, value in (("resource", discovered.resource), ("scope", scope)) if value}
    async with Web(extra=server.allowances) as web:
        return await request_token(web, discovered.token_endpoint, discovered.issuer, credentials, form)


def _credentials(server: MCPServer, supported: tuple[str, ...]) -> client_auth.Credentials:
    return client_auth.configured(server, client_auth.configured_method(server, supported))
