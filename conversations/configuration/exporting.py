"""Rows → a configuration file that, applied, changes nothing; secrets are written as environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from django.db import models
from django.db.models import Q

from accounts import approvers, budget_subjects
from accounts.models import Group, Membership, Organization, User
from agents.models import Agent, ModelEndpoint, ModelProfile
from conversations.configuration.agents import AGENT_FIELDS
from conversations.configuration.endpoints import ENDPOINT_FIELDS, MODEL_FIELDS
from conversations.configuration.grants import described, of_members
from conversations.configuration.reading import escape
from conversations.configuration.reconciling import default_of, is_secret
from conversations.configuration.servers import SERVER_FIELDS
from mcpservers.models import MCPServer
from mcpservers.oauth.config import SECRETS

_PLACEHOLDER = re.compile(r"(\{\{[^{}]*\}\}|\$\{[^{}]*\})")
# Of an organization that is switched off too. Who is switched off is not told, and left alone where it is applied.
_PRESENT = Membership.objects.filter(is_active=True, user__is_active=True)
_SCHEMES = {"", "bearer", "basic", "token", "apikey"}  # words of a header value that are no secret


@dataclass
class _Secrets:
    """Names for what is not written: `${ORG_SERVER_NAME}`, numbered where two would be the same."""

    values: dict[str, str] = field(default_factory=dict)

    def hide(self, value: str, *names: str) -> str:
        """`value` with everything but its placeholders replaced by references."""
        return "".join(
            escape(piece)
            if _PLACEHOLDER.fullmatch(piece) or piece.strip().lower() in _SCHEMES
            else self._reference(piece, names)
            for piece in _PLACEHOLDER.split(value)
        )

    def _reference(self, value: str, names: tuple[str, ...]) -> str:
        stem = re.sub(r"[^A-Z0-9]+", "_", "_".join(names).upper()).strip("_")
        stem = f"_{stem}" if stem[:1].isdigit() else stem
        name, number = stem, 1
        while name in self.values:
            number += 1
            name = f"{stem}_{number}"
        self.values[name] = value
        return "${" + name + "}"


@dataclass(frozen=True, slots=True)
class Export:
    """The file's text, and the environment with which it gives the same rows (the names are in `text`)."""

    text: str
    secrets: Mapping[str, str]


def export_configuration(slugs: Iterable[str] | None = None) -> Export:
    """The organizations `slugs` (default: all) with their members' names, as CONFIGURATION FILE text.

    No password is exported, not even its hash. Sync: it works with rows.
    """
    secrets = _Secrets()
    organizations = Organization.objects.order_by("slug")
    if slugs is not None:
        organizations = organizations.filter(slug__in=slugs)
    value = {
        "users": _users(organizations),
        "organizations": {organization.slug: _organization(organization, secrets) for organization in organizations},
    }
    names = "".join(f"#   {name}\n" for name in secrets.values)
    heading = f"# To be set in the environment when this file is applied:\n{names}" if names else ""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return Export(heading + text, secrets.values)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines, such as instructions, line by line."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _users(organizations: models.QuerySet[Organization]) -> dict[str, Any]:
    members = Q(memberships__organization__in=organizations, memberships__is_active=True)
    users = User.objects.filter(members | Q(is_superuser=True), is_active=True).distinct().order_by("username")
    return {
        user.username: ({"email": escape(user.email)} if user.email else {})
        | ({"superuser": True} if user.is_superuser else {})
        for user in users
    }


def _organization(organization: Organization, secrets: _Secrets) -> dict[str, Any]:
    own = {"organization": organization}
    budgets = budget_subjects.present(organization.pk, organization.budgets)
    memberships = _PRESENT.filter(**own).select_related("user").order_by("user__username")
    return {
        "name": escape(organization.name),
        **({"budgets": _escaped(budgets)} if budgets else {}),
        **({"audit_days": organization.audit_days} if organization.audit_days else {}),
        **({"audit_bodies": True} if organization.audit_bodies else {}),
        **({"own_servers": organization.own_servers} if organization.own_servers != "nobody" else {}),
        "members": {membership.user.username: membership.role for membership in memberships},
        "groups": {group.slug: _group(group) for group in Group.objects.filter(**own)},
        "endpoints": {
            row.slug: _endpoint(row, organization.slug, secrets)
            for row in ModelEndpoint.objects.as_system().filter(**own).prefetch_related("models")
        },
        "servers": {
            row.slug: _server(row, organization.slug, secrets)
            for row in MCPServer.objects.as_system().filter(**own, owner=None).order_by("slug")
        },
        "agents": {
            row.slug: _agent(row)
            for row in Agent.objects.as_system().filter(**own).select_related("model__endpoint").order_by("slug")
        },
    }


def _group(group: Group) -> Any:
    present = _PRESENT.filter(groups=group).order_by("user__username")
    members = list(present.values_list("user__username", flat=True))
    about = {"name": escape(group.name), "rules": _escaped(approvers.named(group.rules))}
    told = {name: value for name, value in about.items() if value}
    return {**told, "members": members} if told else members


def _endpoint(row: ModelEndpoint, organization: str, secrets: _Secrets) -> dict[str, Any]:
    value = _fields(row, ENDPOINT_FIELDS)
    if row.api_key:
        value["api_key"] = secrets.hide(row.api_key, organization, row.slug, "api_key")
    if row.headers:
        value["headers"] = _hidden(row.headers, secrets, organization, row.slug)
    return value | {"models": {model.slug: _model(model) for model in row.models.all()}}


def _model(row: ModelProfile) -> dict[str, Any]:
    prices = {"input": row.input_price, "output": row.output_price}
    given = {name: float(price) for name, price in prices.items() if price is not None}
    return {"name": escape(row.name)} | _fields(row, MODEL_FIELDS) | ({"prices": given} if given else {})


def _server(row: MCPServer, organization: str, secrets: _Secrets) -> dict[str, Any]:
    value = {"title": escape(row.title)} | _fields(row, SERVER_FIELDS)
    for name in ("headers", "env"):
        if getattr(row, name):
            value[name] = _hidden(getattr(row, name), secrets, organization, row.slug)
    if row.oauth is not None:
        value["oauth"] = _escaped(row.oauth)
        for name in SECRETS:
            if row.oauth.get(name):
                value["oauth"][name] = secrets.hide(row.oauth[name], organization, row.slug, name)
    return value | _grants(row)


def _agent(row: Agent) -> dict[str, Any]:
    servers = list(row.servers.select_related("server"))
    tools = {item.server.slug: item.tools for item in servers if item.tools}
    others = [f"{other.endpoint.slug}/{other.slug}" for other in row.other_models.select_related("endpoint")]
    return (
        {"name": escape(row.name), "model": f"{row.model.endpoint.slug}/{row.model.slug}"}
        | ({"other_models": others} if others else {})
        | _fields(row, AGENT_FIELDS)
        | ({"servers": [item.server.slug for item in servers]} if servers else {})
        | ({"tools": _escaped(tools)} if tools else {})
        | _grants(row)
    )


def _grants(row: MCPServer | Agent) -> dict[str, Any]:
    given = [described(grant) for grant in of_members(row.organization, row.grants.select_related("group", "user"))]
    return {"grants": given} if given else {}


def _fields(row: models.Model, names: Iterable[str]) -> dict[str, Any]:
    """What differs from the default, without secrets."""
    told = [name for name in names if not is_secret(type(row), name)]
    values = {name: approvers.named(getattr(row, name)) if name == "rules" else getattr(row, name) for name in told}
    return {name: _escaped(value) for name, value in values.items() if value != default_of(type(row), name)}


def _hidden(values: Mapping[str, str], secrets: _Secrets, organization: str, slug: str) -> dict[str, str]:
    return {name: secrets.hide(value, organization, slug, name) for name, value in values.items()}


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return escape(str(value))
        case dict():
            return {key: _escaped(item) for key, item in value.items()}
        case list():
            return [_escaped(item) for item in value]
        case _:
            return value
