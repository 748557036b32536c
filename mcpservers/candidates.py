"""What an actor's rows say of each server that is wanted: either a problem, or a target and perhaps a list of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import OuterRef

from accounts.actors import Actor
from accounts.grants import Grant, gathered_for, grants_for
from mcpservers import entries
from mcpservers.acting import Identity, acting_target, identities
from mcpservers.credentials import sign_in_of
from mcpservers.entries import Entry
from mcpservers.errors import NotReadyError, SignInRequiredError
from mcpservers.fetching import address_of
from mcpservers.giving import reaches
from mcpservers.models import FOR_PEOPLE, MCPServer, ServerGrant, UserVariables
from mcpservers.offers import ServerProblem, WantedServer
from mcpservers.pins import Pins, owner_of
from mcpservers.requests import RequestContext
from mcpservers.scope import Scope
from mcpservers.sightings import observed
from mcpservers.transports import ConnectionTarget


@dataclass(slots=True)
class Candidate:
    """A wanted server with what its rows say: either a problem, or a target and perhaps an entry."""

    wanted: WantedServer
    server: MCPServer
    grants: tuple[Grant, ...] = ()  # that concern the actor
    problem: ServerProblem | None = None
    identity: Identity = field(default_factory=Identity)
    target: ConnectionTarget | None = None
    entry: Entry | None = None
    pins: Pins | None = None  # of whoever's view `entry` is

    @property
    def is_of_this_turn(self) -> bool:
        return self.target is not None and self.target.scope is Scope.REQUEST

    @property
    def is_for_people(self) -> bool:
        """Whether who uses it can sign in there, as far as is known."""
        return self.identity.links or not self.server.signs_in

    def trouble(self, code: Any, message: str) -> None:
        server = self.server
        self.problem = ServerProblem(server.pk, server.slug, server.title, code, message)

    def needs_sign_in(self, organization: str, error: SignInRequiredError) -> None:
        """Its very list is for people with an account alone."""
        server, sign_in = self.server, sign_in_of(organization, error)
        if self.is_for_people:
            self.problem = ServerProblem(
                server.pk, server.slug, server.title, "needs_sign_in", error.public_message, sign_in
            )
        else:
            self.trouble("unavailable", error.public_message)


def load_candidates(
    actor: Actor,
    wanted: Sequence[WantedServer],
    dialect: str,
    request: RequestContext | None = None,
    accounts: Mapping[str, str] | None = None,
) -> list[Candidate]:
    """The candidates in the order wanted: eight queries at most, however many servers, unless a list is a new one."""
    rows: Any = MCPServer.objects.visible_to(actor).filter(pk__in=[item.server_id for item in wanted])
    grants = gathered_for(actor, ServerGrant.objects.filter(server=OuterRef("pk")))
    servers: dict[UUID, Any] = {server.pk: server for server in rows.annotate(given=grants).defer(*FOR_PEOPLE)}
    with_variables = [server.pk for server in servers.values() if server.variables]
    variables: dict[UUID, dict[str, str]] = {}
    if with_variables:
        own = UserVariables.objects.filter(server__in=with_variables, user_id=actor.user_id)
        variables = {row.server_id: row.values for row in own}
    found = ((item, servers[item.server_id]) for item in wanted if item.server_id in servers)
    candidates = [Candidate(item, server, grants_for(actor, server.given)) for item, server in found]
    who = identities(actor, [candidate.server for candidate in candidates], accounts)
    for candidate in candidates:
        candidate.identity = who[candidate.server.pk]
        _judge(actor, candidate, variables.get(candidate.server.pk, {}), request)
    stored = (c.target for c in candidates if c.target is not None and c.target.scope is not Scope.REQUEST)
    known = entries.find({address_of(target): target.slug for target in stored})
    for candidate in candidates:
        if candidate.target is not None:
            candidate.entry = known.get(address_of(candidate.target))
    _share(candidates)
    prepare(candidates, dialect)
    return candidates


def prepare(candidates: Sequence[Candidate], dialect: str) -> None:
    """The definitions and pins of the candidates' entries: in a thread, since the first time takes a while."""
    views = {}
    for candidate in candidates:
        if candidate.target is not None and candidate.entry is not None:
            candidate.entry.definitions(dialect)
            views[owner_of(candidate.target)] = candidate.entry
    pins = observed(views)
    for candidate in candidates:
        if candidate.target is not None and candidate.entry is not None:
            candidate.pins = pins[owner_of(candidate.target)]


def _share(candidates: Sequence[Candidate]) -> None:
    """Where an admin allows it, who has not signed in is shown the tools that others are: the definitions alone."""
    wanting = {
        address_of(candidate.target): candidate
        for candidate in candidates
        if candidate.identity.is_missing and candidate.entry is None and candidate.target is not None
        if (candidate.server.oauth or {}).get("share_tools")
    }
    for address, entry in entries.of_others({each: one.server.slug for each, one in wanting.items()}).items():
        wanting[address].entry = entry


def _judge(actor: Actor, candidate: Candidate, variables: dict[str, str], request: RequestContext | None) -> None:
    server = candidate.server
    if not server.enabled:
        candidate.trouble("disabled", "It is switched off.")
        return
    may = reaches(actor, server, candidate.grants)
    if not may:
        candidate.trouble("not_granted", may.reason)
        return
    try:
        candidate.target = acting_target(server, actor, variables, candidate.identity, request)
    except NotReadyError as error:
        candidate.trouble("not_ready", error.public_message)
