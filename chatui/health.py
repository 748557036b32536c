"""`/healthz` and `/readyz`, answered before anything that could refuse a probe: it names no host and has no cookie."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from chatui.rows import in_rows

logger = logging.getLogger(__name__)
DATABASE_SECONDS = 5.0


@sync_and_async_middleware
def health_middleware(get_response: Callable[[HttpRequest], Any]) -> Any:
    """Answers the two addresses and passes everything else on."""
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponseBase:
            answer = ANSWERS.get(request.path_info)
            if answer is not None:
                return await answer()
            response: HttpResponseBase = await get_response(request)
            return response

        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponseBase:
        answer = ANSWERS.get(request.path_info)
        response: HttpResponseBase = get_response(request) if answer is None else async_to_sync(answer)()
        return response

    return sync_middleware


async def alive() -> JsonResponse:
    """200 while the process runs its event loop."""
    return _report(200, "ok")


async def ready() -> JsonResponse:
    """200 while new work is welcome: the process is not shutting down and its database answers."""
    from conversations import supervisor  # the middleware is loaded before all apps are

    if supervisor.current().draining:
        return _report(503, "draining")
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            await in_rows(_ask_database)
    except (DatabaseError, TimeoutError) as error:
        logger.warning("Not ready: the database does not answer (%s)", type(error).__name__)
        return _report(503, "database")
    return _report(200, "ok")


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _report(status: int, word: str) -> JsonResponse:
    return JsonResponse({"status": word}, status=status, headers={"Cache-Control": "no-store"})


ANSWERS: dict[str, Callable[[], Awaitable[JsonResponse]]] = {"/healthz": alive, "/readyz": ready}
