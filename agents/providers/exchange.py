"""One HTTP exchange with an endpoint: opened, read as documents, and every way in which it can break.

Imports `openai`: import it late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, cast

import aiohttp
import httpx2
import openai

from agents.providers import clients, failures
from agents.providers.chat_model import (
    EndpointError,
    EndpointRequestError,
    EndpointTimeoutError,
    EndpointUnavailableError,
    EndpointUnreachableError,
)
from agents.providers.patience import Patience
from agents.providers.settings import ModelSettings
from agents.providers.sse import DONE, MALFORMED, EventDecoder, EventTooLargeError, documents, parse_json
from chatui.netguard import AddressRefusedError

MAX_ANSWER_BYTES = 64 * 2**20
MAX_LISTING_BYTES = 4 * 2**20
LINGER_SECONDS = 10.0  # for usage and `[DONE]`, once the answer is whole
_BLANK = b"\xef\xbb\xbf\r\n\t "  # with the bytes of a BOM
DRAIN_SECONDS = 0.05  # for the end of the body after `[DONE]`, so that the connection can be used again


@asynccontextmanager
async def opened(
    settings: ModelSettings, payload: bytes, deadline: float, when_sent: Callable[[], None]
) -> AsyncIterator[Exchange]:
    """Send `payload` to `/chat/completions` and read the answer's head by `deadline` (of the loop's clock).

    `when_sent` is called when it leaves. Raises `EndpointError` for everything that is not an answer with status 200;
    closing it closes the request.
    """
    async with clients.borrowed(settings, deadline) as client:
        watching = clients.when_sent.set(when_sent)
        try:
            async with asyncio.timeout_at(deadline):
                sent = await client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=payload,
                    options={"headers": clients.request_headers(settings)},
                    stream=True,  # the body is left unread; asked for as a response, it is no `AsyncStream`
                    stream_cls=openai.AsyncStream[Any],
                )
        except FAILURES as error:
            raise failure_of(error, settings, "It did not begin to answer in time.") from None
        finally:
            clients.when_sent.reset(watching)
        answer = Exchange(cast(httpx2.Response, sent), settings, deadline)
        try:
            yield answer
        finally:
            await answer.aclose()


async def listing(settings: ModelSettings, deadline: float) -> bytes:
    """The body of `GET /models`, read whole by `deadline`. Raises `EndpointError`."""
    parts: list[bytes] = []
    size = 0
    async with clients.borrowed(settings, deadline) as client:
        try:
            async with asyncio.timeout_at(deadline):
                headers = clients.request_headers(settings)
                sent = await client.get(
                    "/models",
                    cast_to=httpx2.Response,
                    options={"headers": headers},
                    stream=True,
                    stream_cls=openai.AsyncStream[Any],
                )
                async with aclosing(cast(httpx2.Response, sent)) as response:
                    async for data in response.aiter_bytes():
                        parts.append(data)
                        size += len(data)
                        if size > MAX_LISTING_BYTES:
                            raise _not_understood("its list of models is too large")
        except FAILURES as error:
            raise failure_of(error, settings, "did not answer") from None
    return b"".join(parts)


def secrets_of(settings: ModelSettings) -> tuple[str, ...]:
    """What must never be shown: the key, and the values of the headers that were configured."""
    return (settings.api_key.strip(), *(str(value) for value in settings.headers.values() if len(str(value)) >= 8))


# All that the SDK and the layers under it raise for what an endpoint or the network does.
FAILURES = (
    openai.APIError,
    AddressRefusedError,
    TimeoutError,
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
    OSError,
)


def failure_of(error: Exception, settings: ModelSettings, late: str) -> EndpointError:
    """One of `FAILURES` as an `EndpointError`; `late` is what to say of a timeout."""
    match error:
        case openai.APIStatusError():
            headers = error.response.headers
            return failures.status_error(error.status_code, headers, error.body, secrets_of(settings))
        case AddressRefusedError():
            detail = "Its address is not allowed. An operator can allow it with MCP_ALLOW_PRIVATE."
            return EndpointUnreachableError(str(error), detail=detail)
        case openai.APIError():
            return _connection_error(error)
        case TimeoutError():
            return EndpointTimeoutError(late, detail=late)
        case _:
            return _broken(error)


def _broken(error: BaseException) -> EndpointError:
    """A connection that ended within the exchange; `http_status` stays empty."""
    return EndpointUnavailableError(f"the connection broke: {error!r}", detail="The connection broke.")


def _connection_error(error: BaseException) -> EndpointError:
    """Told by aiohttp's own exception: the SDK's layers call a lost connection a timeout."""
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    log = "; ".join(str(cause) or type(cause).__name__ for cause in causes[1:])
    for cause in causes:
        match cause:
            case aiohttp.ClientConnectorDNSError():
                return EndpointUnreachableError(log, detail="The name of its host cannot be resolved.")
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
                return EndpointUnreachableError(log, detail="The TLS connection failed.")
            case aiohttp.ConnectionTimeoutError():
                return EndpointUnreachableError(log, detail="The connection was not made in time.")
            case aiohttp.ClientConnectorError():
                return EndpointUnreachableError(log, detail="The connection was refused.")
            case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | aiohttp.ClientPayloadError():
                return _broken(cause)
    return EndpointUnreachableError(log, detail="The connection failed.")


class Exchange:
    """The body of an answer, read as it comes: the documents that each read brings.

    A body that is one JSON document (an endpoint that does not stream) is that document and `DONE`. The first document
    is waited for until the deadline, each further read for the chunk timeout: any byte, a comment too, begins it anew.
    """

    def __init__(self, response: httpx2.Response, settings: ModelSettings, deadline: float) -> None:
        self._response, self._settings = response, settings
        self._next = clients.reader_of(response)
        self._patience = Patience(deadline)
        self._decoder = EventDecoder()
        self._sniffed = False
        self._begun = False
        self.size = 0  # bytes of the body so far
        self.ending = False  # set it when the answer is whole: what is left is waited for only briefly

    @property
    def secrets(self) -> tuple[str, ...]:
        return secrets_of(self._settings)

    async def aclose(self) -> None:
        self._patience.close()
        await self._response.aclose()

    async def read(self) -> list[Any] | None:
        """The documents of the next read, maybe none; None at the end of the body. Raises `EndpointError`."""
        data = await self._bytes()
        if not self._sniffed and data is not None:
            if not data.strip(_BLANK):
                return []
            self._sniffed = True
            if (whole := await self._whole(data)) is not None:
                return self._noted(whole)
        try:
            events = self._decoder.flush() if data is None else self._decoder.feed(data)
        except EventTooLargeError:
            raise _not_understood("one event of its answer is too large") from None
        found = [document for event in events for document in documents(*event)]
        if data is None:
            # An event that the end of the body cut is no event.
            found = [document for document in found if document is not MALFORMED]
            return found or None
        return self._noted(found)

    def _noted(self, found: list[Any]) -> list[Any]:
        self._begun = self._begun or bool(found)
        return found

    async def _bytes(self) -> bytes | None:
        if self._begun:
            seconds = self._settings.chunk_timeout
            self._patience.per_wait(min(seconds, LINGER_SECONDS) if self.ending else seconds)
        try:
            data = await self._patience.wait(self._next())
        except FAILURES as error:
            late = (
                "It fell silent in the middle of its answer." if self._begun else "It did not begin to answer in time."
            )
            raise failure_of(error, self._settings, late) from None
        if not data:
            return None
        self.size += len(data)
        if self.size > MAX_ANSWER_BYTES:
            raise _not_understood("its answer is too large")
        return data

    async def _whole(self, data: bytes) -> list[Any] | None:
        """If the body is not a stream of events: its one document."""
        head = data.lstrip(_BLANK)[:1]
        if head == b"<":
            raise EndpointRequestError(
                "a web page instead of a completion",
                detail="It answered with a web page instead of a completion. Check its base URL.",
                http_status=self._response.status_code,
            )
        if head not in (b"{", b"["):
            return None
        parts = [data]
        while (more := await self._bytes()) is not None:
            parts.append(more)
        document = parse_json(b"".join(parts))
        if document is MALFORMED:
            raise _not_understood("its answer is neither events nor JSON")
        return [*(document if isinstance(document, list) else [document]), DONE]

    async def drain(self) -> None:
        """Read what is left of a finished body, if it is there already: then the connection is used again."""
        with suppress(*FAILURES):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self._next():
                    pass


def _not_understood(what: str) -> EndpointError:
    return EndpointUnavailableError(what, detail=f"The answer was not understood: {what}.", http_status=200)
