"""The stream under guarded HTTP: what leaves together, and what is said of a stream that ended."""

from __future__ import annotations

import select
import socket

import anyio
import anyio.abc
import httpcore2
import pytest

from chatui.netstream import NetworkStream

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n"


class Wire(anyio.abc.ByteStream):
    """Notes what is sent; `coming` is what is read next."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.coming: list[bytes | Exception] = []

    async def send(self, item: bytes) -> None:
        self.sent.append(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        coming = self.coming.pop(0)
        if isinstance(coming, Exception):
            raise coming
        return coming

    async def send_eof(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


async def test_a_head_and_its_body_leave_in_one_piece() -> None:
    wire = Wire()
    stream = NetworkStream(wire)
    for _ in range(2):
        await stream.write(HEAD, 5)
        assert not wire.sent
        await stream.write(b"body", 5)
        await stream.write(b"", 5)
        assert [wire.sent.pop()] == [HEAD + b"body"]
        assert not wire.sent


async def test_a_head_without_a_body_leaves_when_the_request_ends() -> None:
    wire = Wire()
    stream = NetworkStream(wire)
    await stream.write(HEAD)
    await stream.write(b"")
    assert wire.sent == [HEAD]


async def test_a_body_that_ends_like_a_head_leaves_whole_and_in_order() -> None:
    wire = Wire()
    stream = NetworkStream(wire)
    for piece in (HEAD, b"one\r\n\r\n", b"two\r\n\r\n", b"three", b"\r\n\r\n", b""):
        await stream.write(piece)
    assert b"".join(wire.sent) == HEAD + b"one\r\n\r\ntwo\r\n\r\nthree\r\n\r\n"


async def test_nothing_is_waited_for_while_something_is_held_back() -> None:
    wire = Wire()
    wire.coming.append(b"HTTP/1.1 200 OK\r\n\r\n")
    stream = NetworkStream(wire)
    await stream.write(HEAD)
    assert await stream.read(100) == b"HTTP/1.1 200 OK\r\n\r\n"
    assert wire.sent == [HEAD]


@pytest.mark.parametrize("timeout", [None, 5.0])
async def test_how_a_stream_ends_is_told_in_the_words_of_its_pool(timeout: float | None) -> None:
    wire = Wire()
    wire.coming += [anyio.EndOfStream(), anyio.BrokenResourceError(), anyio.ClosedResourceError(), TimeoutError()]
    stream = NetworkStream(wire)
    assert await stream.read(100, timeout) == b""
    for error in (httpcore2.ReadError, httpcore2.ReadError, httpcore2.ReadTimeout):
        with pytest.raises(error):
            await stream.read(100, timeout)


async def test_it_is_readable_when_something_came_or_the_other_side_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    wire = await anyio.abc.SocketStream.from_socket(ours)
    stream = NetworkStream(wire)
    with theirs:
        assert not stream.get_extra_info("is_readable")
        theirs.sendall(b"x")
        assert await stream.read(100) == b"x"
        assert not stream.get_extra_info("is_readable")
    assert select.select([ours], [], [], 60)[0]
    assert stream.get_extra_info("is_readable")
    assert stream.get_extra_info("server_addr") == wire.extra(anyio.abc.SocketAttribute.remote_address)
    await stream.aclose()
    assert stream.get_extra_info("is_readable")
