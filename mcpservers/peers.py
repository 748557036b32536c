"""The processes of one site and their connections to MCP servers: what each holds, and word from one to the others.

With `REDIS_URL` each process tells what it holds every few seconds, and hears what is to be closed or forgotten.
Word may be lost: then a connection that nobody can use any more ends a while later, when it has been idle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from uuid import UUID, uuid4

import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from pydantic import TypeAdapter, ValidationError
from redis import asyncio as async_redis
from redis.exceptions import RedisError

from chatui.layers import leave_group, tell_group
from mcpservers import catalogue, connections, fetching
from mcpservers.health import Trouble, troubles
from mcpservers.pool import ConnectionInfo

logger = logging.getLogger(__name__)

GROUP = "mcpservers"
PREFIX = "chatui:mcp:"
PUBLISH_SECONDS = 5.0
KEPT_SECONDS = 15  # after which what a process told is that of a dead one
RETRY_SECONDS = 5.0
TIMEOUT = 2.0


@cache
def process() -> str:
    """This process, as an admin knows it: host and number."""
    return f"{socket.gethostname()}:{os.getpid()}"


@cache
def _own_id() -> str:
    return uuid4().hex  # two containers may have the same name and number


@dataclass(frozen=True, slots=True)
class Pause:
    """A credential with which one process leaves a server alone; `user_id` None: the organization's."""

    server_id: UUID
    user_id: UUID | None
    retry_at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class Told:
    """What some processes hold. `complete` is False where some of the others could not be asked or understood."""

    connections: tuple[ConnectionInfo, ...] = ()
    pauses: tuple[Pause, ...] = ()
    troubles: tuple[tuple[UUID, Trouble], ...] = ()  # with the server
    complete: bool = True
    at: float = 0.0  # seconds since the epoch


_json = TypeAdapter(Told)


def here() -> Told:
    """What this process holds. From any thread."""
    name = process() if settings.REDIS_URL else ""
    return Told(
        tuple(replace(info, process=name) for info in connections.live_connections()),
        tuple(
            Pause(circuit.server_id, circuit.user_id, refusal.retry_at, refusal.cause)
            for circuit, refusal in connections.all_refusals()
        ),
        tuple(troubles.all()),
        at=time.time(),
    )


def everywhere() -> Told:
    """What every process of this site holds: this one at this moment, the others a few seconds ago. A sync function."""
    own = here()
    if not settings.REDIS_URL:
        return own
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT) as client:
            mine = _key().encode()
            keys = [key for key in client.scan_iter(f"{PREFIX}*", count=1000) if key != mine]
            texts = [text for text in (client.mget(keys) if keys else ()) if text]
    except RedisError as error:
        logger.warning("What other processes hold cannot be told, Redis is away: %s", error)
        return replace(own, complete=False)
    others = [told for text in texts if (told := _read(text)) is not None]
    parts = [own, *map(_by_now, others)]
    return Told(
        tuple(info for part in parts for info in part.connections),
        tuple(pause for part in parts for pause in part.pauses),
        tuple(trouble for part in parts for trouble in part.troubles),
        complete=len(others) == len(texts),
    )


def _read(text: bytes) -> Told | None:
    """What a process told; None for one of another version of this program, as there are while a new one starts."""
    try:
        return _json.validate_json(text)
    except ValidationError as error:
        logger.warning("What another process holds cannot be read: %s", error)
        return None


def _by_now(told: Told) -> Told:
    """With the times that have passed since."""
    passed = max(0.0, time.time() - told.at)
    return replace(told, connections=tuple(_older(info, passed) for info in told.connections))


def _older(info: ConnectionInfo, seconds: float) -> ConnectionInfo:
    return replace(info, age=info.age + seconds, idle=0.0 if info.leases else info.idle + seconds)


def _key() -> str:
    return f"{PREFIX}{_own_id()}"


async def publish() -> None:
    """Tell the others what this process holds, until cancelled; then it is forgotten. Never raises else."""
    client = async_redis.Redis.from_url(settings.REDIS_URL, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    key = _key()
    try:
        while True:
            try:
                await client.set(key, _json.dump_json(here()), ex=KEPT_SECONDS)
            except RedisError as error:
                logger.warning("Other processes cannot be told of connections, Redis is away: %s", error)
            await asyncio.sleep(PUBLISH_SECONDS)
    finally:
        with suppress(RedisError):  # it goes by itself
            await client.delete(key)
        await client.aclose()


# --- Word ---------------------------------------------------------------------------------------------------------


async def account_changed(server_id: UUID, user_id: UUID | None) -> None:
    """An account of `user_id` (None: the organization's) was linked, linked anew, disconnected, or made the default.

    Connections that act with it as it was end with their last call, here and elsewhere; what could not be done for
    want of it is tried again at once.
    """
    message = {"type": "account", "server": str(server_id), "user": str(user_id) if user_id is not None else ""}
    _act(message)
    await _tell(message)


def close_connection(connection_id: UUID) -> None:
    """Close a connection, whoever holds it. A sync function; it is on its way on return."""
    _do({"type": "close", "connection": str(connection_id)})


def reconnect(server_id: UUID) -> None:
    """Forgive what a server did and close every connection to it: the next use opens new ones. A sync function."""
    _do({"type": "reconnect", "server": str(server_id)})


def server_changed(server_id: UUID) -> None:
    """A server's definition or grants changed, or it is gone: forget what memory knows of it. A sync function.

    Its connections end with their last call: what is being done was allowed when it began.
    """
    _do({"type": "changed", "server": str(server_id)})


def _do(message: dict[str, str]) -> None:
    _act(message)
    if settings.REDIS_URL:
        async_to_sync(_tell)(message)


def _act(message: dict[str, str]) -> None:
    """Do it in this process. From any thread."""
    match message["type"]:
        case "account":
            user_id = UUID(message["user"]) if message["user"] else None
            connections.drop(UUID(message["server"]), user_id=user_id)
            fetching.forgive(UUID(message["server"]))
        case "close":
            connections.close_connection(UUID(message["connection"]))
        case "reconnect":
            fetching.forgive(UUID(message["server"]))
            connections.close_all(UUID(message["server"]))
        case "changed":
            catalogue.invalidate(UUID(message["server"]))
            connections.drop(UUID(message["server"]))


async def _tell(message: dict[str, str]) -> None:
    if settings.REDIS_URL:  # else there is no other process
        await tell_group(GROUP, {**message, "from": _own_id()})


async def listen() -> None:
    """Do what other processes say, until cancelled. Never raises else."""
    layer = get_channel_layer()
    assert layer is not None
    while True:
        try:
            channel = await layer.new_channel()
            await layer.group_add(GROUP, channel)
            try:
                while True:
                    message = await layer.receive(channel)
                    if message.get("from") != _own_id():
                        _act(message)
            finally:
                await leave_group(GROUP, channel)
        except asyncio.CancelledError:
            raise
        except Exception:  # whatever broke: what was said is lost, and what it was about ends by itself
            logger.exception("What other processes say cannot be heard; trying again")
            await asyncio.sleep(RETRY_SECONDS)
