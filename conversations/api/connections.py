"""One's own accounts at servers: which there are, their names, which is used, their end. Never a token."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, JsonResponse
from pydantic import Field

from accounts.actors import Actor
from chatui.errors import InvalidRequestError
from conversations.api import body
from conversations.api.door import Call
from conversations.linking import news
from conversations.linking.overview import account_json, account_of, connection_json, connections_of
from mcpservers.oauth import accounts


class Change(body.Body):
    name: str | None = Field(default=None, min_length=1, max_length=200)
    default: bool | None = None


async def index(call: Call) -> HttpResponse:
    """No server is connected for this: states are what is known of them."""
    found = await connections_of(call.actor)
    return JsonResponse({"items": [connection_json(one, call.actor.organization_slug) for one in found]})


async def update(call: Call, account: UUID) -> HttpResponse:
    return JsonResponse(await call.rows(change, account, body.read(Change, call.request)))


def change(actor: Actor, account: UUID, wanted: Change) -> dict[str, object]:
    """Rename the account, make it the default, or both. Raises `NotFoundError`, `InvalidRequestError`."""
    if wanted.default is False:
        raise InvalidRequestError(public_message="default: make another account the default instead.")
    changed = None
    if wanted.name is not None:
        changed = accounts.rename(actor, account, wanted.name)
    if wanted.default:
        changed = accounts.make_default(actor, account)
    if changed is None:
        raise InvalidRequestError(public_message="Nothing to change: name or default.")
    return account_json(account_of(changed, changed.server))


async def disconnect(call: Call, account: UUID) -> HttpResponse:
    """It is forgotten here in any case; `warning` says what was not done there."""
    gone = await news.disconnect(call.actor, account)
    told = {"server": gone.server_title, "account": gone.account, "revoked": not gone.warning, "warning": gone.warning}
    return JsonResponse(told)
