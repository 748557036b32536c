"""What is answered when no view answers: pages for people, JSON under the API's addresses, never a traceback."""

from __future__ import annotations

import logging
import sys
import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

logger = logging.getLogger(__name__)
JSON_PATHS = ("/api/", "/v1/")


def reference_for(error: BaseException, request: HttpRequest) -> str:
    """Log an unexpected error under a fresh reference, which is all that the client is told of it."""
    reference = uuid.uuid4().hex[:12]
    logger.error("Reference %s: %s %s failed", reference, request.method, request.path, exc_info=error)
    return reference


def error_body(code: str, message: str, **more: Any) -> dict[str, Any]:
    """The body of every JSON error: `{"error": {"code", "message", …}}`."""
    return {"error": {"code": code, "message": message, **more}}


def _answer(request: HttpRequest, status: int, code: str, message: str, **more: Any) -> HttpResponse:
    if request.path.startswith(JSON_PATHS):
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return JsonResponse(error_body(code, message, type=kind, **more), status=status)
    # Without the request: no context processor runs, so neither the session nor the database is needed, and
    # messages that wait for the next real page stay where they are.
    return HttpResponse(render_to_string(f"{status}.html", {"message": message, **more}), status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 400, "invalid_request", _("The request could not be understood."))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 403, "permission_denied", _("You are not allowed to do this."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    message = _("This form is too old, or cookies are blocked. Go back, reload the page and send it again.")
    return _answer(request, 403, "csrf", message)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 404, "not_found", _("There is nothing at this address, or not for you."))


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]
    reference = reference_for(error or RuntimeError("unknown"), request)
    message = _("Something went wrong on our side. It has been noted.")
    return _answer(request, 500, "internal", message, reference=reference)
