"""The one door of the HTTP API: session or key becomes an actor, errors become JSON, nothing else gets out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.middleware.csrf import CsrfViewMiddleware
from django.views.decorators.csrf import csrf_exempt

from accounts import policy
from accounts.actors import Actor
from accounts.doors import Door, StrangerError
from accounts.policy import Action
from chatui.error_pages import error_body, reference_for
from chatui.errors import ChatUIError, InvalidRequestError, NotFoundError, PermissionDeniedError, TooLargeError
from chatui.rows import in_rows

T = TypeVar("T")
SAFE_METHODS = frozenset({"GET", "HEAD"})
INTERNAL_MESSAGE = "Something went wrong on our side. It has been noted."


class MethodNotAllowedError(ChatUIError):
    """The address exists, but not for this method."""

    code = "method_not_allowed"
    status = 405
    public_message = "This method is not allowed here."


class CSRFError(PermissionDeniedError):
    """A write with a session cookie came without the token that only our own pages can send."""

    code = "csrf"
    public_message = "The CSRF token is missing or wrong: send the csrftoken cookie as the X-CSRFToken header."


@dataclass(frozen=True, slots=True)
class Call:
    """One request by an actor; `door` can be asked again who that is, by what takes its time."""

    request: HttpRequest
    actor: Actor
    door: Door

    async def rows(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Cross to rows: `function(actor, …)`, one unit of work."""
        return await in_rows(function, self.actor, *args, **kwargs)


Handler = Callable[..., Coroutine[Any, Any, HttpResponseBase]]
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


class _CSRFCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


def enter(request: HttpRequest) -> tuple[Actor, Door]:
    """Who asks, from fresh rows: with `Authorization: Bearer` the key alone counts, else the session cookie.

    `?organization=` picks one of the user's organizations. Raises `SignedOutError` (401), `NotFoundError` for an
    organization that is not the actor's, `CSRFError` for a write with a session and without its token.
    """
    authorization = request.headers.get("Authorization", "")
    key = authorization if authorization.lower().startswith("bearer") else None
    organization = request.GET.get("organization") or None
    door = Door(organization, session_key=request.COOKIES.get(settings.SESSION_COOKIE_NAME), authorization=key)
    try:
        actor = door.actor()
    except StrangerError:
        if organization is None:
            raise
        raise NotFoundError(public_message="There is no such organization.") from None
    if key is None and request.method not in SAFE_METHODS:
        check = _CSRFCheck(lambda request: HttpResponseBase())
        # The middleware has read the cookie; the view is exempt from it, since keys need no token.
        if check.process_view(request, None, (), {}) is not None:  # type: ignore[arg-type]  # only asked for an exemption
            raise CSRFError
    return actor, door


def methods(action: Action | None, /, **handlers: Handler) -> View:
    """A view that lets `action` in (None: every member and every key) and hands on to the method's handler.

    Handlers take a `Call` and the address's values. What they raise is answered in JSON: a `ChatUIError` as itself,
    anything else as a reference to the log.
    """

    async def view(request: HttpRequest, **captured: Any) -> HttpResponseBase:
        try:
            handler = handlers.get("GET" if request.method == "HEAD" else str(request.method))
            if handler is None:
                raise MethodNotAllowedError
            actor, door = await in_rows(enter, request)
            if action is not None:
                policy.require(actor, action)
            response = await handler(Call(request, actor, door), **captured)
        except Exception as error:  # the documented boundary between a request and the process
            response = error_response(error, request)
            if isinstance(error, MethodNotAllowedError):
                response["Allow"] = ", ".join(handlers)
        response.headers.setdefault("Cache-Control", "no-store, private")
        return response

    view.handlers = handlers  # type: ignore[attr-defined]  # for the test that enumerates every door
    return csrf_exempt(view)


def public_error(error: Exception, request: HttpRequest) -> tuple[ChatUIError, Mapping[str, Any]]:
    """What a client is told of `error`, and what else belongs to its body; the unexpected is logged."""
    match error:
        case ChatUIError():
            return error, {}
        case RequestDataTooBig():
            return TooLargeError(public_message="The request's body is too large."), {}
        case MultiPartParserError() | BadRequest() | SuspiciousOperation():
            return InvalidRequestError(), {}
    failure = ChatUIError(public_message=INTERNAL_MESSAGE)
    failure.code, failure.status = "internal", 500  # type: ignore[misc]  # of this instance alone
    return failure, {"reference": reference_for(error, request)}


def error_response(error: Exception, request: HttpRequest) -> JsonResponse:
    told, more = public_error(error, request)
    response = JsonResponse(error_body(told.code, told.public_message, **more), status=told.status)
    if told.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="chatui"'
    return response
