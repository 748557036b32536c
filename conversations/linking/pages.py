"""The page of connections, and what its forms do: all but servers of one's own work without scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from csp.constants import NONCE
from csp.decorators import csp_update
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from accounts import policy
from accounts.actors import Actor
from accounts.models import Organization
from chatui.errors import ChatUIError, NotFoundError
from chatui.rows import in_rows
from conversations.api import own_servers, variables
from conversations.browser_modules import import_map
from conversations.linking import news
from conversations.linking.members import member_page
from conversations.linking.overview import Connection, connection_json, connections_of
from mcpservers.oauth import accounts

NAME_LENGTH = 200


@require_safe
@never_cache
@ensure_csrf_cookie
@member_page
async def connections(request: HttpRequest, actor: Actor) -> HttpResponseBase:
    """`/o/<org>/connections/`."""
    return await in_rows(_page, request, actor, await connections_of(actor))


def _page(request: HttpRequest, actor: Actor, found: list[Connection]) -> HttpResponseBase:
    slug = actor.organization_slug
    organization = Organization.objects.get(pk=actor.organization_id)
    own = own_servers.overview(actor)
    context = {
        "organization": organization,
        "connections": found,
        "own": own,
        "manages": bool(policy.allows(actor, policy.Action.MANAGE)),
        "import_map": json.dumps({"imports": import_map()}),
        "config": {
            "organization": {"slug": slug, "name": organization.name},
            "csrf_cookie": settings.CSRF_COOKIE_NAME,
            "items": [connection_json(one, slug) for one in found],
            "own": own,
        },
    }

    @csp_update({"script-src": [NONCE]})  # for the import map alone
    def shown(request: HttpRequest) -> HttpResponse:
        return render(request, "linking/connections.html", context)

    return shown(request)


@require_POST
@member_page
async def change_account(request: HttpRequest, actor: Actor, account: UUID) -> HttpResponseBase:
    """`action`: `rename` (with `name`), `default` or `disconnect`."""
    match request.POST.get("action"):
        case "rename":
            return await _done(request, actor, _rename, actor, account, request.POST.get("name", ""))
        case "default":
            return await _done(request, actor, _make_default, actor, account)
        case "disconnect":
            gone = await news.disconnect(actor, account)
            return await _done(request, actor, _words_of, gone)
    raise NotFoundError


def _rename(actor: Actor, account: UUID, name: str) -> str:
    renamed = accounts.rename(actor, account, name[:NAME_LENGTH])
    return _("The account is called %(name)s now.") % {"name": renamed.name}


def _make_default(actor: Actor, account: UUID) -> str:
    chosen = accounts.make_default(actor, account)
    return _("%(name)s is used unless a chat says otherwise.") % {"name": chosen.name}


def _words_of(gone: accounts.Disconnected) -> str:
    told = _("%(account)s was disconnected from %(server)s.") % {"account": gone.account, "server": gone.server_title}
    return f"{told} {gone.warning or _('Its access was revoked there.')}"


@require_POST
@sensitive_post_parameters()
@member_page
async def change_variables(request: HttpRequest, actor: Actor, server: str) -> HttpResponseBase:
    """The form of a server's variables: an empty field keeps what is stored, `clear` names what is to be forgotten."""
    values: Mapping[str, Any] = request.POST.dict()
    given: dict[str, Any] = {name[2:]: value for name, value in values.items() if name.startswith("v-") and value}
    given |= dict.fromkeys(request.POST.getlist("clear"))
    return await _done(request, actor, _store, actor, server, given)


def _store(actor: Actor, server: str, given: Mapping[str, Any]) -> str:
    variables.change(actor, server, given)
    return _("Stored.") if given else _("Nothing was changed.")


async def _done(request: HttpRequest, actor: Actor, change: Callable[..., str], *args: Any) -> HttpResponseBase:
    """Run `change`, and lead back to the page with what it says, or with what was wrong."""

    def run() -> HttpResponseBase:
        try:
            messages.success(request, change(*args))
        except NotFoundError:
            raise
        except ChatUIError as error:
            messages.error(request, error.public_message)
        return HttpResponseRedirect(f"/o/{actor.organization_slug}/connections/")

    return await in_rows(run)
