"""On behalf of the user: the token of an OIDC sign-in, exchanged for one that a server takes (RFC 8693, or Entra's).

The user's token goes to the provider that issued it and nowhere else. What comes back is kept in memory, encrypted,
until it expires.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from accounts.actors import find_actor
from accounts.models import User
from accounts.policy import Action, allows
from chatui.fields import DecryptionError, decrypt, encrypt
from chatui.rows import in_rows
from mcpservers.errors import LinkError, NotReadyError, ServerUnavailableError
from mcpservers.models import MCPServer
from mcpservers.oauth import client_auth, enterprise, metadata, signins
from mcpservers.oauth.challenges import scopes_in
from mcpservers.oauth.client_auth import Credentials
from mcpservers.oauth.grants import EXCHANGE, JWT_BEARER, Granted, GrantRefusedError, request_token
from mcpservers.oauth.signins import SignIn
from mcpservers.oauth.web import Web

if TYPE_CHECKING:
    from accounts.actors import Actor

OPERATOR = "operator"  # `MCPServer.obo_author` of a definition that the operator's file made
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LONGEST_SECONDS = 3600.0  # what is kept, also where the server does not say how long it lives
SHORTEST_SECONDS = 10.0  # what a token must still live to be sent
RIGHT_AFTER_SECONDS = 60.0
MOST_KEPT = 1000


@dataclass(slots=True)
class _Kept:
    sealed: str
    expires: float
    made: float


_kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()


class ExchangedTokens:
    """Gives tokens that stand for the actor at one server.

    Raises `NotReadyError` where the person must sign in to this product again, or where nobody who may still do so
    answers for the definition; `ServerUnavailableError` for now.
    """

    def __init__(self, actor: Actor, server: MCPServer) -> None:
        self.actor, self.server = actor, server
        self.key = f"obo:{server.pk}:{actor.user_id}"

    async def current(self) -> str:
        """A token that is not about to expire."""
        place, sign_in = await self._allowed()
        kept = _kept.get(place)
        if kept is not None and kept.expires > time.monotonic() + SHORTEST_SECONDS:
            try:
                return decrypt(kept.sealed)
            except DecryptionError:
                pass  # the keys were changed: exchange again
        return await self._exchanged(place, sign_in)

    async def renewed(self, refused: str) -> str:
        """Another token than `refused`; a token that was just exchanged is not exchanged again."""
        place, sign_in = await self._allowed()
        kept = _kept.get(place)
        if kept is not None:
            token = decrypt(kept.sealed)
            if token != refused:
                return token
            if time.monotonic() - kept.made < RIGHT_AFTER_SECONDS:
                title = self.server.title
                raise ServerUnavailableError(
                    f"“{title}” does not accept the token that was exchanged for it.",
                    public_message=f"“{title}” does not accept your sign-in. Tell an administrator.",
                )
        return await self._exchanged(place, sign_in)

    @property
    def _obo(self) -> dict[str, Any]:
        obo: dict[str, Any] = (self.server.oauth or {})["obo"]
        return obo

    @property
    def _grant(self) -> str:
        return str(self._obo.get("grant") or "")

    @property
    def _scope(self) -> str:
        return " ".join(scopes_in(self._obo.get("scopes")))

    async def _allowed(self) -> tuple[tuple[Any, ...], SignIn]:
        identity = self._grant == enterprise.GRANT
        sign_in = await in_rows(self._answered_for)
        if not sign_in.lives(identity):
            sign_in = await signins.sign_in_of(self.actor.user_id, identity=identity)
        definition = self.server.definition_hash()
        return (self.server.pk, self.actor.user_id, definition, sign_in.provider.id, sign_in.version), sign_in

    def _answered_for(self) -> SignIn:
        """The person's sign-in as it is stored, where somebody answers for using it. A row function."""
        if not answers_for(self.server.pk):
            raise NotReadyError(
                f"“{self.server.title}” is called on behalf of people, for which nobody answers who may. "
                "An administrator has to save its OAuth settings again."
            )
        return signins.stored(self.actor.user_id)

    async def _exchanged(self, place: tuple[Any, ...], sign_in: SignIn) -> str:
        granted = await self._exchange(sign_in)
        seconds = min(granted.seconds if granted.seconds is not None else LONGEST_SECONDS, LONGEST_SECONDS)
        now = time.monotonic()
        _kept[place] = _Kept(encrypt(granted.access_token), now + seconds, now)
        _kept.move_to_end(place)
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
        return granted.access_token

    async def _exchange(self, sign_in: SignIn) -> Granted:
        title = self.server.title
        try:
            if self._grant == enterprise.GRANT:
                return await enterprise.redeem(self.server, sign_in, self._scope)
            async with Web(extra=[sign_in.provider.allowance]) as web:
                said = await signins.metadata_of(web, sign_in.provider)
                endpoint = self._endpoint(said)
                credentials = self._credentials(sign_in, said)
                return await request_token(web, endpoint, said["issuer"], credentials, self._form(sign_in))
        except GrantRefusedError as refusal:
            if refusal.error in ("invalid_grant", "interaction_required", "login_required", "consent_required"):
                raise NotReadyError(
                    f"“{title}” cannot be called on your behalf: {refusal}. Sign out and in again; if that does not "
                    "help, tell an administrator."
                ) from None
            raise ServerUnavailableError(
                f"The exchange for “{title}” was refused: {refusal}",
                public_message=f"“{title}” cannot be called on your behalf just now. Tell an administrator.",
            ) from None
        except LinkError as error:
            raise ServerUnavailableError(error.for_admin, public_message=error.public_message) from None

    def _endpoint(self, said: dict[str, str]) -> str:
        wanted = self._obo.get("token_endpoint") or said["token_endpoint"]
        if not signins.same_host(wanted, said):
            raise LinkError(
                "bad_metadata",
                f"“{self.server.title}” is not set up well. Tell an administrator.",
                for_admin="obo.token_endpoint is not at the provider that people sign in with.",
            )
        return str(wanted)

    def _credentials(self, sign_in: SignIn, said: dict[str, str]) -> Credentials:
        if not (self.server.oauth or {}).get("client_id"):
            return signins.credentials_of(sign_in.provider, said)
        method = client_auth.configured_method(self.server, said["methods"].split())
        return client_auth.configured(self.server, method)

    def _form(self, sign_in: SignIn) -> dict[str, str]:
        obo, scope = self._obo, self._scope
        if self._grant == "jwt-bearer":
            form = {
                "grant_type": JWT_BEARER,
                "assertion": sign_in.token,
                "requested_token_use": "on_behalf_of",
                "scope": scope,
            }
        else:
            audience, resource = obo.get("audience") or "", obo.get("resource") or ""
            if not audience and not resource:
                resource = metadata.canonical_resource(metadata.literal_part(self.server.url))
            form = {
                "grant_type": EXCHANGE,
                "subject_token": sign_in.token,
                "subject_token_type": ACCESS_TOKEN,
                "requested_token_type": ACCESS_TOKEN,
                "audience": audience,
                "resource": resource,
                "scope": scope,
            }
        return {name: value for name, value in form.items() if value}


def answers_for(server_id: UUID) -> bool:
    """Whether whoever configured that the server is called on behalf of users may still do so. A row function."""
    row = MCPServer.objects.as_system().filter(pk=server_id).values_list("obo_author", "organization_id").first()
    if row is None or not row[0]:
        return False
    author, organization_id = row
    if author == OPERATOR:
        return True
    try:
        user_id = UUID(author)
    except ValueError:
        return False
    if User.objects.filter(pk=user_id, is_active=True, is_superuser=True).exists():
        return True
    actor = find_actor(user_id, organization_id)
    return actor is not None and bool(allows(actor, Action.CONFIGURE_OBO))


def forget_all() -> None:
    """Forget every exchanged token of this process."""
    _kept.clear()
