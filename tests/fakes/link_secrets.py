"""Everything secret that linking stores, planted at one server with one canary in each."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from accounts.models import User
from mcpservers.models import (
    LinkAttempt,
    LinkedAccount,
    MCPServer,
    OAuthClient,
    OAuthDiscovery,
    SignInToken,
    ToolVersion,
)

ISSUER = "https://login.example.org"


def plant(server: MCPServer, user: User, canary: str) -> LinkedAccount:
    """An account of `user`, one of the organization, our client, an attempt, and the user's own sign-in.

    The definition gets a private key; what is not secret of all that (names, metadata, versions of tools) is there too.
    """
    server.oauth = {"client_id": "c", "private_key": f"{canary}-private-key", "scopes": ["notes:read"]}
    server.oauth |= {"grant": "jwt-bearer", "assertion": f"{canary}.assertion"}
    server.save()
    of = {"organization": server.organization, "server": server}
    client = OAuthClient.objects.create(
        **of, issuer=ISSUER, source="dynamic", client_id="dyn-1", secrets={"client_secret": f"{canary}-client-secret"}
    )
    kinds = ("access_token", "refresh_token", "id_token", "dpop_key")
    tokens = {kind: f"{canary}-{kind}" for kind in kinds}
    linked = {**of, "binding": server.oauth_binding(), "issuer": ISSUER, "client": client, "tokens": tokens}
    linked |= {"scopes": ["notes:read"], "is_default": True}
    account: LinkedAccount = LinkedAccount.objects.create(**linked, user=user, name="Ada Lovelace", subject="sub-ada")
    LinkedAccount.objects.create(**linked, name="Organization", state="relink", last_error="It ended.")
    now = timezone.now()
    document = {"resource": server.url, "issuer": ISSUER, "scopes": ["notes:read"], "scopes_supported": ["x"]}
    document |= {f"{kind}_endpoint": f"{ISSUER}/{kind}" for kind in ("authorization", "token")}
    LinkAttempt.objects.create(
        **of,
        state_hash="s",
        browser_hash="b",
        user=user,
        account=account,
        client=client,
        binding=server.oauth_binding(),
        metadata=document,
        verifier=f"{canary}-code-verifier",
        redirect_uri=f"{ISSUER}/callback",
        expires_at=now + timedelta(minutes=10),
    )
    OAuthDiscovery.objects.create(
        **of, binding=server.oauth_binding(), document=document, fetched_at=now, expires_at=now + timedelta(hours=1)
    )
    SignInToken.objects.create(user=user, provider="company", tokens=tokens)
    for decision in ToolVersion.Decision:
        definition = {"name": f"look_{decision}", "inputSchema": {"type": "object"}}
        ToolVersion.objects.create(
            server=server, tool=definition["name"], hash=f"h{decision}", definition=definition, decision=decision
        )
    return account
