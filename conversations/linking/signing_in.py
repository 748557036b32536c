"""The way to a sign-in and back: a page that says where it leads, and the authorization server's answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_safe

from accounts import policy
from accounts.actors import Actor, find_actor
from accounts.doors import SignedOutError
from chatui.error_pages import error_body
from chatui.errors import ChatUIError, InvalidRequestError
from chatui.rows import in_rows
from conversations import supervisor
from conversations.linking import news
from conversations.linking.browser import browser_of, known_browser
from conversations.linking.members import member_page, problem_page, user_of
from conversations.linking.overview import begin_path
from conversations.linking.wanted import Wanted, split_return, wanted
from conversations.usable import usable_server
from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import attempts, client_metadata, discovery, flow
from mcpservers.oauth.flow import Begun, Completed
from mcpservers.oauth.whose import Whose, whose_account

ONCE = ("code", "state", "iss", "error")  # RFC 6749, 3.1: no parameter more than once


# --- The way there ----------------------------------------------------------------------------------------------------


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@member_page
async def begin(request: HttpRequest, actor: Actor, server: str) -> HttpResponse:
    """GET says where the sign-in leads and changes nothing: nobody is sent there by a link alone. POST begins it."""
    values = (request.POST if request.method == "POST" else request.GET).dict()
    asked = wanted(values, actor.organization_slug)
    found = await in_rows(usable_server, actor, server)
    if request.method != "POST":
        return await in_rows(_interstitial, request, actor, found, asked)
    browser = await in_rows(browser_of, request.session)
    try:
        begun = await flow.begin(
            actor,
            found.pk,
            browser=browser,
            account_id=asked.account_id,
            scopes=asked.scopes,
            return_to=asked.return_to,
        )
    except LinkError as error:
        return await in_rows(_failed, request, error, actor)
    return await in_rows(_leaving, request, found, begun)


def _interstitial(request: HttpRequest, actor: Actor, server: MCPServer, asked: Wanted) -> HttpResponse:
    known, account = discovery.known(server), _own(actor, server, asked.account_id)
    scopes, had = flow.scopes_for(server, known, account, asked.scopes), account.scopes if account is not None else ()
    context = {
        "server": server,
        "host": server.host,
        "issuer": known.issuer if known is not None else "",
        "asked": asked,
        "account": account.name if account is not None else "",
        "scopes": [scope for scope in scopes if not had or scope in had],
        "new_scopes": [scope for scope in scopes if had and scope not in had],
        "needless": whose_account(server) in (Whose.ORGANIZATION, Whose.ON_BEHALF),
    }
    return render(request, "linking/begin.html", context)


def _own(actor: Actor, server: MCPServer, account_id: UUID | None) -> LinkedAccount | None:
    """The person's own account that is to be linked again; None for a new one."""
    if account_id is None:
        return None
    rows = LinkedAccount.objects.visible_to(actor).filter(user_id=actor.user_id, server=server, pk=account_id)
    account: LinkedAccount | None = rows.defer("tokens").first()
    return account


def _leaving(request: HttpRequest, server: MCPServer, begun: Begun) -> HttpResponse:
    """A page that leaves by itself. A redirect would be refused: a form's target, redirects included, is this site."""
    response = render(request, "linking/leaving.html", {"server": server, "begun": begun})
    response["Referrer-Policy"] = "no-referrer"
    return response


# --- The way back -----------------------------------------------------------------------------------------------------


@never_cache
@require_GET
async def callback(request: HttpRequest) -> HttpResponse:
    """`/mcp/oauth/callback`: store the account, tell who waits for it, and close the window or lead back.

    Whatever is wrong is a page in words; nothing of the query is shown, and it leads to no other site.
    """
    user_id, browser = await in_rows(lambda: (user_of(request), known_browser(request.session)))
    state = request.GET.get("state", "")
    try:
        if user_id is None:
            message = _("You are not signed in here any more. Sign in, then connect again.")
            await in_rows(attempts.turned_away, None, state, LinkError("signed_out", message))
            raise SignedOutError(public_message=message)
        supervisor.current().require_open()
        if any(len(request.GET.getlist(name)) > 1 for name in ONCE):
            message = _("The answer of the sign-in page makes no sense. Connect again.")
            twice = "A callback that has a parameter twice (RFC 6749, 3.1)."
            await in_rows(attempts.turned_away, user_id, state, LinkError("bad_answer", message, for_admin=twice))
            raise InvalidRequestError(public_message=message)
        completed = await flow.complete(user_id, request.GET.dict(), browser=browser)
    except LinkError as error:
        return await in_rows(_failed_for, request, error, user_id)
    except ChatUIError as error:
        return await in_rows(problem_page, request, error, title=_("This sign-in was not completed"))
    await news.linked(user_id, completed)
    return await in_rows(_done, request, user_id, completed)


def _done(request: HttpRequest, user_id: UUID, completed: Completed) -> HttpResponse:
    actor = find_actor(user_id, completed.organization_id)
    back, close = split_return(completed.return_to)
    if not close:
        messages.success(request, _connected(completed))
        return HttpResponseRedirect(back)
    told = {
        "type": "signed-in",
        "organization": actor.organization_slug if actor is not None else "",
        "server": completed.server_slug,
        "title": completed.server_title,
        "account": completed.account,
    }
    return render(request, "linking/done.html", {"completed": completed, "back": back, "news": told})


def _connected(completed: Completed) -> str:
    return _("Connected to %(server)s as %(account)s.") % {
        "server": completed.server_title,
        "account": completed.account,
    }


def _failed_for(request: HttpRequest, error: LinkError, user_id: UUID | None) -> HttpResponse:
    actor = find_actor(user_id, error.organization_id) if user_id is not None else None
    return _failed(request, error, actor)


def _failed(request: HttpRequest, error: LinkError, actor: Actor | None) -> HttpResponse:
    """Why nothing was linked, what one can do, and word to the chat that waits. An admin is told more."""
    home = f"/o/{actor.organization_slug}/connections/" if actor is not None else "/"
    back, close = split_return(error.return_to or home)
    context: dict[str, Any] = {"title": _title(error), "back": back, "server_title": error.server_title}
    if actor is not None and error.server_slug:
        context["retry"] = begin_path(actor.organization_slug, error.server_slug)
        context["retry_values"] = {"back": back, "window": "1" if close else ""}
        context["news"] = {
            "type": "sign-in-failed",
            "organization": actor.organization_slug,
            "server": error.server_slug,
            "title": error.server_title,
            "message": error.public_message,
        }
    context["manages"] = actor is not None and bool(policy.allows(actor, policy.Action.MANAGE))
    return problem_page(request, error, **context)


def _title(error: LinkError) -> str:
    if error.reason == "declined":
        return _("You declined")
    if error.server_title:
        return _("%(server)s was not connected") % {"server": error.server_title}
    return _("The account was not connected")


# --- Who we are, for authorization servers ----------------------------------------------------------------------------


@require_safe
def client_document(request: HttpRequest) -> HttpResponse:
    """`/mcp/oauth/client.json`: our client ID metadata document. Such a document is named by https, or not at all."""
    if not client_metadata.is_served():
        message = "This document needs a BASE_URL that is https; until then servers are registered with one by one."
        return JsonResponse(error_body("not_found", message), status=404)
    response = JsonResponse(client_metadata.document())
    response["Cache-Control"] = "public, max-age=3600"
    return response
