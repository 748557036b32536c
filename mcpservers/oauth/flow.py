"""Linking an account in two requests: `begin` leads to the authorization server, `complete` redeems what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from accounts.actors import Actor


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, the host that the person will see there, and what is asked for."""

    url: str
    host: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """The account that was linked; its tokens are stored."""

    organization_id: UUID
    server_id: UUID
    server_slug: str
    server_title: str
    account_id: UUID
    account: str
    return_to: str  # a path of this site, or ""


async def begin(
    actor: Actor,
    server_id: UUID,
    *,
    browser: str,
    account_id: UUID | None = None,
    scopes: Sequence[str] = (),
    return_to: str = "",
) -> Begun:
    """Begin to link an account (`account_id`: to link that one again) and return where the person signs in.

    `browser` is the random value that this browser's session keeps. Raises `NotFoundError` for a server that the
    actor may not use, `LinkError` for everything else.
    """
    raise NotImplementedError


async def complete(user_id: UUID, query: Mapping[str, str], *, browser: str) -> Completed:
    """Redeem the answer of the authorization server, store the tokens, and say what was linked.

    Raises `LinkError`; its `reason` is `declined` when the person said no, `used` for an answer that was seen before,
    is too old, or belongs to another user or browser.
    """
    raise NotImplementedError
