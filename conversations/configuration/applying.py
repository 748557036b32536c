"""A configuration file → rows, in one transaction; applied twice it changes nothing."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts import budget_subjects
from accounts.models import Group, Membership, Organization
from conversations.configuration import schema
from conversations.configuration.agents import apply_agents
from conversations.configuration.endpoints import apply_endpoints
from conversations.configuration.people import apply_groups, apply_members, apply_user, may_go
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError, Path, Problem
from conversations.configuration.reading import read_document
from conversations.configuration.reconciling import Reconciler, Scope
from conversations.configuration.recording import record_applied
from conversations.configuration.servers import apply_servers
from conversations.configuration.warning import note_warnings
from mcpservers import peers


def apply_configuration(
    text: str, *, prune: bool = False, plan_only: bool = False, environment: Mapping[str, str] | None = None
) -> Plan:
    """Make the rows what the YAML `text` says and return what was changed (with `plan_only`: what would be).

    Acts as the operator: nothing is asked of the policy, and stdio servers are allowed. Raises `ConfigurationError`
    with every problem found; then nothing is changed. With `prune`, what the organizations of the file have beyond
    it is deleted: memberships, groups, endpoints, models, servers, agents; never users, conversations, or an
    organization, and no group that still denies something to its members. `environment` stands in for the process's
    own. Sync: it works with rows.
    """
    document = read_document(text, os.environ if environment is None else environment)
    configuration = schema.validate(document.value)
    reconciler = Reconciler(document)
    try:
        with transaction.atomic():
            for username, user in configuration.users.items():
                apply_user(reconciler, username, user)
            for slug, organization in configuration.organizations.items():
                _apply_organization(reconciler, slug, organization, prune)
            if reconciler.problems or plan_only:
                transaction.set_rollback(True)
            else:
                record_applied(reconciler.plan)
    except IntegrityError:
        message = "Somebody else changed the same objects at the same time. Nothing was applied: try again."
        raise ConfigurationError([Problem((), message)]) from None
    if reconciler.problems:
        raise ConfigurationError(reconciler.problems)
    return reconciler.plan


def _apply_organization(reconciler: Reconciler, slug: str, section: schema.Organization, prune: bool) -> None:
    path = ("organizations", slug)
    stored = Organization.objects.filter(slug=slug).first()
    # A file without a name does not rename what there is, and one that says nothing of the audit leaves it as it is.
    kept = slug if stored is None else stored.name
    said = section.model_dump(include={"audit_days", "audit_bodies", "own_servers"}, exclude_none=True)
    organization = reconciler.put(
        path,
        stored,
        Organization(slug=slug),
        {"name": kept if section.name is None else section.name, **said},
    )
    if organization is None:
        return
    scope = Scope(reconciler, organization, path)
    # References go one way: agents → models, servers; grants → groups, members. Deleting goes the other.
    undo = [
        apply_members(scope, section.members),
        apply_groups(scope, section.groups),
        apply_endpoints(scope, section.endpoints),
        apply_servers(scope, section.servers),
        apply_agents(scope, section),
    ]
    rows = [row for surplus in undo for _, row in surplus] if prune else []
    _apply_budgets(scope, section, {row.user_id if isinstance(row, Membership) else row.pk for row in rows})
    note_warnings(scope, section)
    servers = {(*path, "servers", name): server.pk for name, server in scope.servers.items()}
    if prune and not reconciler.problems:
        for surplus in reversed(undo):
            for place, row in surplus:
                if not isinstance(row, Group) or may_go(scope, place, row):
                    reconciler.delete(place, row)
    for change in reconciler.plan.changes:
        if change.path in servers:  # what other processes hold of it is of yesterday
            transaction.on_commit(partial(peers.server_changed, servers[change.path]))


_SECTIONS = {"group": "groups", "user": "members", "agent": "agents"}


def _apply_budgets(scope: Scope, section: schema.Organization, going: Collection[UUID]) -> None:
    """Last of all, since they name others. Of who is gone it stays as it is, where the file says nothing new."""
    organization, reconciler, path = scope.organization, scope.reconciler, (*scope.path, "budgets")
    wanted, found = budget_subjects.resolved(organization.pk, section.budgets, leaving=going)
    following = [problem for problem in found if reconciler.problems and _defined(section, problem[0])]
    for where, words in found:
        if (where, words) not in following:
            reconciler.problem((*path, *map(str, where)), words)
    if not found and budget_subjects.present(organization.pk, organization.budgets) != section.budgets:
        kept = budget_subjects.switched_off(organization.pk, organization.budgets)
        reconciler.put(scope.path, organization, organization, {"budgets": [*wanted, *kept]})


def _defined(section: schema.Organization, where: Path) -> bool:
    """Whether the file itself has whom a budget names: that it could not be made is a problem of its own."""
    if len(where) != 3 or not isinstance(where[0], int):
        return False
    budget = section.budgets[where[0]]
    name = budget["only"][where[2]]
    return isinstance(name, str) and name in getattr(section, _SECTIONS.get(budget["per"], ""), ())
