"""The stream under guarded HTTP: a request leaves in one piece, and what is asked at every request costs little."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.abc
import httpcore2
from httpcore2._backends.anyio import AnyIOStream  # what its public backend makes; there is no public name for it
from httpcore2._utils import is_socket_readable

_END_OF_HEAD = b"\r\n\r\n"


class NetworkStream(AnyIOStream):
    """A stream of a connection pool. Raises what the pool's own streams raise.

    The pool writes a request's head, its body and its end apart from each other, which are two packets, and two
    awakenings of the server: a head is held back until the next write, which follows at once, and goes out with it.
    """

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        super().__init__(stream)
        self._held = b""
        self._socket = stream.extra(anyio.abc.SocketAttribute.raw_socket, None)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not self._held and buffer.endswith(_END_OF_HEAD):
            self._held = buffer
            return
        if self._held:
            buffer, self._held = self._held + buffer, b""
        await super().write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:  # nobody may wait for the answer to what has not left
            await self.write(b"", timeout)
        if timeout is not None:
            return await super().read(max_bytes, timeout)
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(error) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(error) from error

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        """As ever, but that a cancellation during the handshake leaves nothing open."""
        try:
            secured = await super().start_tls(*args, **kwargs)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        assert isinstance(secured, AnyIOStream)
        return NetworkStream(secured._stream)

    def get_extra_info(self, info: str) -> Any:
        # At every request the pool asks twice; the stream would ask the system for all that it knows of the socket.
        return is_socket_readable(self._socket) if info == "is_readable" else super().get_extra_info(info)
