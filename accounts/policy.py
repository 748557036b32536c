"""Actions, the table of roles, and grants: every verdict carries its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from django.utils.translation import get_language

from accounts.actors import Actor
from accounts.models import Role
from chatui.errors import PermissionDeniedError


class Action(StrEnum):
    CHAT = "chat"  # start, follow and stop turns in one's own conversations
    USE_AGENT = "use_agent"  # be offered an agent that is granted to one
    CALL_TOOL = "call_tool"
    ANSWER = "answer"  # decide an approval that was asked of one
    READ_AUDIT = "read_audit"
    READ_USAGE = "read_usage"
    OWN_SERVERS = "own_servers"  # define and use MCP servers of one's own, where the organization lets its members
    CONFIGURE_OBO = "configure_obo"  # have a server called on behalf of its users, with their sign-ins
    MANAGE = "manage"  # endpoints, servers, agents, members, grants
    DELETE_ORGANIZATION = "delete_organization"
    NAME_OWNERS = "name_owners"


_CHAT = frozenset({Action.CHAT, Action.USE_AGENT, Action.CALL_TOOL, Action.ANSWER})
ROLES: dict[Role, frozenset[Action]] = {
    Role.GUEST: _CHAT,  # with agents granted to them by name: see `granted`
    Role.MEMBER: _CHAT | {Action.OWN_SERVERS},
    Role.AUDITOR: frozenset({Action.READ_AUDIT, Action.READ_USAGE}),
    Role.ADMIN: _CHAT | {Action.OWN_SERVERS, Action.READ_USAGE, Action.MANAGE, Action.CONFIGURE_OBO},
    Role.OWNER: _CHAT
    | {Action.OWN_SERVERS, Action.READ_USAGE, Action.READ_AUDIT, Action.MANAGE, Action.CONFIGURE_OBO}
    | {Action.DELETE_ORGANIZATION, Action.NAME_OWNERS},
}
# What a key may do at most; a session has no such bound.
SCOPES: dict[str, frozenset[Action]] = {
    "chat": frozenset({Action.CHAT, Action.USE_AGENT, Action.CALL_TOOL}),
    "read": frozenset({Action.READ_USAGE, Action.READ_AUDIT}),
    "approve": frozenset({Action.ANSWER}),
    "admin": frozenset({Action.MANAGE, Action.CONFIGURE_OBO, Action.OWN_SERVERS}),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed or not, and why, in words for a person. True in a boolean context when allowed."""

    allowed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.allowed


def allows(actor: Actor, action: Action) -> Verdict:
    """Whether the actor's role (and the key's scopes) allow `action`, before any grant is looked at."""
    if action not in ROLES[actor.role]:
        return Verdict(False, f"The role {actor.role.label} does not include “{action}”.")
    if action is Action.OWN_SERVERS and not actor.own_servers:
        return Verdict(False, "The organization does not let its members have servers of their own.")
    if actor.scopes is not None and not any(action in SCOPES.get(scope, ()) for scope in actor.scopes):
        return Verdict(False, f"This API key has no scope for “{action}”.")
    return _included(actor.role, action, get_language())


@lru_cache(maxsize=256)
def _included(role: Role, action: Action, language: str | None) -> Verdict:
    """The usual verdict, whose words are made once in each language: nobody reads them before most calls."""
    return Verdict(True, f"The role {role.label} includes “{action}”.")


def may_have_servers(actor: Actor) -> Verdict:
    """Whether the person may have servers of their own just now, with whatever key they came in.

    What a key may *do* with such a server is what it may do with any; to define one takes `Action.OWN_SERVERS`.
    """
    return allows(replace(actor, scopes=None), Action.OWN_SERVERS)


def require(actor: Actor, action: Action) -> None:
    """Raise `PermissionDeniedError` with the reason unless `allows(actor, action)`."""
    verdict = allows(actor, action)
    if not verdict:
        raise PermissionDeniedError(verdict.reason, public_message=verdict.reason)


class GrantRow(Protocol):
    """A stored grant, of a server or of an agent: exactly one of the three says whom it is for."""

    @property
    def whole_organization(self) -> bool: ...

    @property
    def group_id(self) -> UUID | None: ...

    @property
    def user_id(self) -> UUID | None: ...

    @property
    def deny(self) -> bool: ...


def granted(actor: Actor, grants: Iterable[GrantRow]) -> Verdict:
    """Whether `grants` (all of one object) give it to the actor. Deny wins; no grant is no access, for admins too.

    A guest is given only what names the guest or one of the guest's groups, never what the whole organization has.
    """
    allowed = ""
    for grant in grants:
        if grant.user_id is not None:
            applies, whom = grant.user_id == actor.user_id, "you"
        elif grant.group_id is not None:
            applies, whom = grant.group_id in actor.groups, "a group of yours"
        else:
            applies, whom = grant.whole_organization, "the whole organization"
            if applies and actor.role is Role.GUEST and not grant.deny:
                continue
        if not applies:
            continue
        if grant.deny:
            return Verdict(False, f"It is denied to {whom}.")
        allowed = allowed or f"It is granted to {whom}."
    return Verdict(True, allowed) if allowed else Verdict(False, "It is not granted to you.")
