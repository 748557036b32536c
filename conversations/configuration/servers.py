"""MCP servers of a configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conversations.configuration import schema
from conversations.configuration.grants import apply_grants
from conversations.configuration.problems import Path, dotted
from conversations.configuration.reconciling import Scope, Surplus, wanted_values
from mcpservers.definitions import Finding, findings
from mcpservers.models import MCPServer, UserVariables
from mcpservers.oauth.exchange import OPERATOR, answers_for
from mcpservers.scope import scope_of

SERVER_FIELDS = (
    "description",
    "transport",
    "url",
    "command",
    "args",
    "headers",
    "env",
    "variables",
    "oauth",
    "timeout",
    "connect_timeout",
    "trust",
    "new_tools",
    "read_only",
    "rules",
    "use_instructions",
    "enabled",
)
_TEMPLATES = ("url", "command", "args", "headers", "env")


def apply_servers(scope: Scope, section: Mapping[str, schema.Server]) -> Surplus:
    rows = MCPServer.objects.as_system().filter(organization=scope.organization, owner=None)
    stored = {row.slug: row for row in rows}
    scope.servers.update(stored)
    path = (*scope.path, "servers")
    for slug, server in section.items():
        row = _apply_server(scope, (*path, slug), stored.get(slug), slug, server)
        if row is None:
            scope.broken.add(("servers", slug))
        else:
            scope.servers[slug] = row
    return [((*path, slug), row) for slug, row in stored.items() if slug not in section]


def _apply_server(
    scope: Scope, path: Path, stored: MCPServer | None, slug: str, section: schema.Server
) -> MCPServer | None:
    before = None if stored is None else (stored.revision, stored.transport, stored.url)
    _refuse_second_expansion(scope, path)

    def checked(server: MCPServer) -> Iterator[Finding]:
        # Called only when something differs: the row's readers learn of the change by its revision.
        if before is not None:
            server.revision += 1
        yield from findings(server)

    new = MCPServer(organization=scope.organization, slug=slug)
    row = scope.reconciler.put(path, stored, new, _wanted(slug, section, stored), checked)
    if row is None:
        return None
    if before is None or before[0] != row.revision:
        verdict = scope_of(row.definition())
        scope.reconciler.plan.notes.append(f"{dotted(path)}: {verdict.scope} scope. {verdict.reason}")
    if before is not None and before[1:] != (row.transport, row.url):
        _drop_user_variables(scope, row)
    apply_grants(scope, path, row, section.grants)
    return row


def _wanted(slug: str, section: schema.Server, stored: MCPServer | None) -> dict[str, Any]:
    wanted = wanted_values(MCPServer, section, SERVER_FIELDS)
    if section.oauth is not None:
        wanted["oauth"] = section.oauth.model_dump(exclude_none=True)
    on_behalf = section.oauth is not None and section.oauth.obo is not None
    kept_author = stored is not None and stored.oauth == wanted["oauth"] and answers_for(stored.pk)
    wanted["obo_author"] = "" if not on_behalf else stored.obo_author if stored and kept_author else OPERATOR
    kept = slug if stored is None else stored.title
    return {"title": kept if section.title is None else section.title} | wanted


def _refuse_second_expansion(scope: Scope, path: Path) -> None:
    """A definition is expanded again when it is connected: an environment value must not be a template itself."""
    for place in scope.reconciler.document.expanded_again:
        if place[: len(path)] == path and len(place) > len(path) and place[len(path)] in _TEMPLATES:
            scope.reconciler.problem(place, "the environment's value holds “${” or “{{”, which would be expanded again")


def _drop_user_variables(scope: Scope, server: MCPServer) -> None:
    """What users entrusted to one address is not sent to another."""
    dropped, _ = UserVariables.objects.filter(server=server).delete()
    if dropped:
        scope.reconciler.plan.notes.append(
            f"{server.title}: its address changed, so the stored variables of {dropped} user(s) are dropped."
        )
