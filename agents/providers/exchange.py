"""One HTTP exchange with an endpoint: opened, read as documents, and every way in which it can break.

Imports `openai`: import it late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
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
from agents.providers.settings import ModelSettings
from agents.providers.sse import DONE, MALFORMED, EventDecoder, EventTooLargeError, documents, parse_json
from chatui.netguard import AddressRefusedError

MAX_ANSWER_BYTES = 64 * 2**20
MAX_LISTING_BYTES = 4 * 2**20
LINGER_SECONDS = 5.0  # for usage and `[DONE]`, once the answer is whole
DRAIN_SECONDS = 0.05  # for the end of the body after `[DONE]`, so that the connection can be used again


@asynccontextmanager
async def opened(settings: ModelSettings, payload: bytes, deadline: float) -> AsyncIterator[Exchange]:
    """Send `payload` to `/chat/completions` and read the answer's head by `deadline` (of the loop's clock).

    Raises `EndpointError` for everything that is not an answer with status 200; closing it closes the request.
    """
    secrets = secrets_of(settings)
    async with clients.borrowed(settings, deadline) as client:
        with mapped_failures(settings, "did not begin to answer"):
            async with asyncio.timeout_at(deadline):
                sent = await client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=payload,
                    options={"headers": clients.request_headers(settings)},
                    stream=True,  # the body is left unread; asked for as a response, it is no `AsyncStream`
                    stream_cls=openai.AsyncStream[Any],
                )
        response = cast(httpx2.Response, sent)
        try:
            yield Exchange(response, settings, deadline, secrets)
        finally:
            await response.aclose()


async def listing(settings: ModelSettings, deadline: float) -> bytes:
    """The body of `GET /models`, read whole by `deadline`. Raises `EndpointError`."""
    parts: list[bytes] = []
    size = 0
    async with clients.borrowed(settings, deadline) as client:
        with mapped_failures(settings, "did not answer"):
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
    return b"".join(parts)


def secrets_of(settings: ModelSettings) -> tuple[str, ...]:
    """What must never be shown: the key, and the values of the headers that were configured."""
    return (settings.api_key.strip(), *(str(value) for value in settings.headers.values() if len(str(value)) >= 8))


@contextmanager
def mapped_failures(settings: ModelSettings, late: str) -> Iterator[None]:
    """Turn what the SDK and the layers under it raise into an `EndpointError`; `late` is how a timeout is worded."""
    try:
        yield
    except EndpointError:
        raise
    except openai.APIStatusError as error:
        secrets = secrets_of(settings)
        raise failures.status_error(error.status_code, error.response.headers, error.body, secrets) from None
    except AddressRefusedError as error:
        detail = "Its address is not allowed. An operator can allow it with MCP_ALLOW_PRIVATE."
        raise EndpointUnreachableError(str(error), detail=detail) from None
    except openai.APIConnectionError as error:
        raise _connection_error(error) from None
    except TimeoutError:
        raise EndpointTimeoutError(f"{late} in time", detail=f"It {late} in time.") from None
    except (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError) as error:
        raise _broken(error) from None


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

    def __init__(
        self, response: httpx2.Response, settings: ModelSettings, deadline: float, secrets: tuple[str, ...]
    ) -> None:
        self._response, self._settings, self._deadline, self._secrets = response, settings, deadline, secrets
        self._reads = response.aiter_bytes()
        self._decoder = EventDecoder()
        self.size = 0
        self._sniffed = False
        self.first_at: float | None = None  # time.monotonic() of the first document
        self.ending = False  # set it when the answer is whole: what is left is waited for only briefly

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    async def read(self) -> list[Any] | None:
        """The documents of the next read, maybe none; None at the end of the body. Raises `EndpointError`."""
        data = await self._bytes()
        if not self._sniffed and data is not None:
            if not data.strip(b"\xef\xbb\xbf\r\n\t "):
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
        if found and self.first_at is None:
            self.first_at = time.monotonic()
        return found

    async def _bytes(self) -> bytes | None:
        with mapped_failures(self._settings, "stopped answering" if self.first_at else "did not begin to answer"):
            async with self._limit():
                data = await anext(self._reads, None)
        if data is not None:
            self.size += len(data)
            if self.size > MAX_ANSWER_BYTES:
                raise _not_understood("its answer is too large")
        return data

    def _limit(self) -> asyncio.Timeout:
        if self.first_at is None:
            return asyncio.timeout_at(self._deadline)
        seconds = self._settings.chunk_timeout
        return asyncio.timeout(min(seconds, LINGER_SECONDS) if self.ending else seconds)

    async def _whole(self, data: bytes) -> list[Any] | None:
        """If the body is not a stream of events: its one document."""
        head = data.lstrip(b"\xef\xbb\xbf\r\n\t ")[:1]
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
        return [document[0] if isinstance(document, list) and document else document, DONE]

    async def drain(self) -> None:
        """Read what is left of a finished body, if it is there already: then the connection is used again."""
        with suppress(EndpointError, TimeoutError, httpx2.HTTPError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await anext(self._reads, None) is not None:
                    pass


def _not_understood(what: str) -> EndpointError:
    return EndpointUnavailableError(what, detail=f"The answer was not understood: {what}.", http_status=200)
