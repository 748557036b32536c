"""Pages of members that wait for something: who asks is looked up in one step, and every refusal is a page in words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _

from accounts import policy
from accounts.actors import Actor, find_actor
from chatui.errors import ChatUIError, NotFoundError
from chatui.rows import in_rows
from mcpservers.errors import LinkError

Page = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
DEFAULT_TITLE = "This did not work"


def user_of(request: HttpRequest) -> UUID | None:
    """Who is signed in; a row function, as are all that touch the session."""
    return request.user.pk if request.user.is_authenticated else None


def member_page(page: Page) -> Page:
    """`page(request, actor, …)` for a member of the organization in its address.

    Signed-out visitors are led to sign in, for everybody else there is nothing at the address. A `ChatUIError` becomes
    a page that says what can be done.
    """

    @functools.wraps(page)
    async def entered(request: HttpRequest, organization: str, **captured: Any) -> HttpResponseBase:
        def come_in() -> tuple[UUID | None, Actor | None]:
            user_id = user_of(request)
            return user_id, find_actor(user_id, organization) if user_id is not None else None

        user_id, actor = await in_rows(come_in)
        if user_id is None:
            return redirect_to_login(request.get_full_path())
        if actor is None:
            raise Http404
        try:
            policy.require(actor, policy.Action.CHAT)
            return await page(request, actor, **captured)
        except NotFoundError as error:
            raise Http404(str(error)) from None
        except ChatUIError as error:
            back = f"/o/{actor.organization_slug}/"
            if policy.allows(actor, policy.Action.CHAT):
                back += "connections/"
            return await in_rows(problem_page, request, error, back=back)

    return entered


def problem_page(
    request: HttpRequest, error: ChatUIError, *, title: str = "", back: str = "/", **context: Any
) -> HttpResponse:
    """What went wrong in words, what one can do, and the way back; never what came in with the request."""
    more = {"for_admin": error.for_admin, "code": error.reason} if isinstance(error, LinkError) else {}
    values = {"title": title or _(DEFAULT_TITLE), "message": error.public_message, "back": back, **more, **context}
    # Proxies put pages of their own in the place of 502 and the like; a person is to read this one.
    status = 400 if isinstance(error, LinkError) and error.status >= 500 else error.status
    response = render(request, "linking/problem.html", values, status=status)
    response["Cache-Control"] = "no-store"
    return response
