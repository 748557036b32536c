"""Middleware of our own: storable queries, static files without leaving the event loop, the site's content policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from csp.middleware import CSPMiddleware, PolicyParts
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware

NO_DEVICES = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


@sync_and_async_middleware
def clean_query(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """NUL in a query becomes a replacement character, as in every other text: no database can look for it."""
    if iscoroutinefunction(get_response):

        async def answer(request: HttpRequest) -> HttpResponseBase:
            _clean(request)
            response: HttpResponseBase = await get_response(request)
            return response

        return answer

    def answer_now(request: HttpRequest) -> Any:
        _clean(request)
        return get_response(request)

    return answer_now


def _clean(request: HttpRequest) -> None:
    query = request.META.get("QUERY_STRING", "")
    if "%00" in query:  # the only way to write it there
        request.META["QUERY_STRING"] = query.replace("%00", quote("\ufffd"))


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # WhiteNoise has no type stubs
    """WhiteNoise, which alone in the chain is synchronous: it would cost every request two threads.

    A client that goes away could then not cancel a view that awaits a model either.
    """

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def add_files(self, root: str, prefix: str | None = None) -> None:
        # Before `collectstatic` there is no STATIC_ROOT: the finders serve, and there is nothing to warn of.
        if os.path.isdir(root):
            super().add_files(root, prefix)

    def __call__(self, request: HttpRequest) -> Any:
        return self._answer(request) if iscoroutinefunction(self) else super().__call__(request)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        path = request.path_info
        static_file = (
            await asyncio.to_thread(self.find_file, path)
            if self.autorefresh and path.startswith(self.static_prefix)
            else self.files.get(path)
        )
        if static_file is None:
            get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]] = self.get_response
            return await get_response(request)
        return await asyncio.to_thread(_file_response, static_file, request)


def _file_response(static_file: Any, request: HttpRequest) -> HttpResponse:
    """Read whole: a file of ours is small, and a file object would be streamed by threads, block by block."""
    answer = static_file.get_response(request.method, request.META)
    body = b""
    if answer.file is not None:
        with answer.file as file:
            body = file.read()
    response = HttpResponse(body, status=int(answer.status))
    del response["content-type"]
    for name, value in answer.headers:
        response[name] = value
    return response


class PolicyMiddleware(CSPMiddleware):
    """The content policy of the page; `/admin/` has its own, with what its theme needs. No device for any page."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if not report_only and parts.config is None and request.path_info.startswith(_admin_path()):
            parts.config = settings.CONTENT_SECURITY_POLICY_ADMIN["DIRECTIVES"]
        return parts

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault(
            "Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        )
        answer: HttpResponseBase = super().process_response(request, response)
        return answer


def _admin_path() -> str:
    try:
        return reverse("admin:index")
    except NoReverseMatch:
        return "/admin/"
