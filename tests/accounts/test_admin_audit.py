"""What is done in the admin is recorded: who, to what, which fields; nothing of what is in them that is a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client, RequestFactory
from django.urls import reverse

from accounts.admin_audit import verbs_of
from accounts.models import ApiKey, AuditAction, AuditRecord, Group, Membership, Organization, Role, User
from accounts.tenant_admin import TenantAdmin
from agents.models import Agent, ModelEndpoint
from agents.providers.endpoints import EndpointReport
from mcpservers.models import MCPServer, OwnServer
from tests.accounts.test_admin import add, edit, membership
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import CANARY, World, post_data, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def entries(*actions: AuditAction) -> list[AuditRecord]:
    rows = AuditRecord.objects.as_system().exclude(action__in=("sign_in", "sign_out"))
    return list((rows.filter(action__in=actions) if actions else rows).order_by("at", "id"))


def only() -> AuditRecord:
    (found,) = entries()
    return found


@pytest.fixture
def admin(world: World) -> Client:
    return client_of(world.acme.people[Role.ADMIN])


@pytest.fixture
def owner(world: World) -> Client:
    return client_of(world.acme.people[Role.OWNER])


def test_a_new_role_is_told_with_the_old_one_and_who_gave_it(admin: Client, world: World) -> None:
    member = membership(world.acme.people[Role.MEMBER])
    assert edit(admin, member, role="auditor").status_code == 302
    entry = only()
    assert (entry.action, entry.via, entry.organization_id) == ("member.changed", "admin", world.acme.organization.pk)
    assert (entry.actor_id, entry.person_id) == (world.acme.people[Role.ADMIN].pk, member.user_id)
    assert entry.details == {"fields": ["role"], "values": {"role": ["member", "auditor"]}}


def test_people_are_ids_and_slugs_are_names(admin: Client, world: World) -> None:
    group = world.acme[Group]
    member = membership(world.acme.people[Role.MEMBER])
    assert edit(admin, group, members=[member.pk]).status_code == 302
    entry = only()
    assert (entry.object_type, entry.object_id, entry.object_name) == ("group", str(group.pk), "acme-group")
    assert entry.details["values"] == {"members": {"added": [str(member.user_id)], "removed": []}}


def test_a_definition_s_change_names_fields_and_shows_no_secret(admin: Client, world: World) -> None:
    endpoint = world.acme[ModelEndpoint]
    address = url(ModelEndpoint, "change", endpoint)
    data = post_data(admin.get(address)) | {"name": "Renamed", "api_key": f"{CANARY}-typed"}
    assert admin.post(address, data).status_code == 302
    entry = only()
    assert (entry.action, entry.object_type) == ("definition.changed", "endpoint")
    assert set(entry.details["fields"]) == {"name", "api_key"}
    assert CANARY not in json.dumps(AuditRecord.objects.as_system().values().first(), default=str)


def test_grants_are_entries_of_their_own_that_say_for_whom(admin: Client, world: World) -> None:
    server, member = world.acme[MCPServer], world.acme.people[Role.MEMBER]
    address = url(MCPServer, "change", server)
    data = post_data(admin.get(address))
    data |= {"grants-TOTAL_FORMS": "2", "grants-1-user": str(member.pk), "grants-1-deny": "on", "grants-1-tool": "x_*"}
    assert admin.post(address, data).status_code == 302
    entry = only()
    assert (entry.action, entry.person_id, entry.server) == ("grant.added", member.pk, "acme-server")
    assert entry.details["for"] == {"user": str(member.pk)}
    assert (entry.details["deny"], entry.details["tool"]) == (True, "x_*")


def test_budgets_have_an_entry_of_their_own(owner: Client, world: World) -> None:
    person = world.acme.people[Role.MEMBER]
    row = {"per": "user", "only": person.username, "tokens_per_day": "10"}
    answer = edit(owner, world.acme.organization, **{f"budgets-0-{key}": value for key, value in row.items()})
    assert answer.status_code == 302
    (entry,) = entries(AuditAction.BUDGET_CHANGED)
    budgets = [{"per": "user", "only": [{"id": str(person.pk)}], "tokens_per_day": 10}]
    assert entry.details == {"values": {"budgets": [[], budgets]}}
    assert person.username not in json.dumps(entry.details)


def test_a_new_user_with_a_first_membership_is_two_entries(admin: Client, world: World) -> None:
    answer = add(admin, User, username="dora", organization=str(world.acme.organization.pk), role="guest")
    assert answer.status_code == 302
    dora = User.objects.get(username="dora")
    assert {entry.action: entry.person_id for entry in entries()} == {"user.created": dora.pk, "member.added": dora.pk}
    assert {entry.organization_id for entry in entries()} == {world.acme.organization.pk}
    assert "dora" not in json.dumps(list(AuditRecord.objects.as_system().values()), default=str)


def test_a_key_s_life_is_told_by_its_prefix(owner: Client, world: World) -> None:
    add(owner, ApiKey, name="mine", scopes=["chat"], organization=str(world.acme.organization.pk))
    key = ApiKey.objects.get(name="mine")
    data = {"action": "revoke", "_selected_action": [str(key.pk)]}
    owner.post(url(ApiKey, "changelist"), data)
    made, revoked = entries()
    assert (made.action, revoked.action) == ("key.created", "key.revoked")
    assert made.object_name == revoked.object_name == key.prefix
    assert made.person_id == revoked.person_id == world.acme.people[Role.OWNER].pk


def allowed(verb: str) -> list[Any]:
    """The registered models of which a superuser may do this; a new one needs its line in `NEW` and `CHANGED`."""
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True)
    found = []
    for model, admin in site._registry.items():
        may = getattr(admin, f"has_{verb}_permission")
        if may(request) if verb == "add" else may(request, model()):
            found.append(model)
    return sorted(found, key=lambda model: model.__name__)


NEW: dict[Any, dict[str, Any]] = {
    Agent: {"slug": "new", "name": "New"},
    ApiKey: {"name": "New", "scopes": ["chat"]},
    Group: {"slug": "new", "name": "New"},
    MCPServer: {"slug": "new", "title": "New", "url": "https://mcp.example.org/mcp"},
    Membership: {"person": "globex-guest", "role": "member"},
    ModelEndpoint: {"slug": "new", "base_url": "https://models.example.org/v1"},
    Organization: {"slug": "new", "name": "New"},
    User: {"username": "new", "role": "member"},
}
CHANGED: dict[Any, dict[str, Any]] = {
    Agent: {"name": "Other"},
    Group: {"name": "Other"},
    MCPServer: {"title": "Other"},
    Membership: {"role": "auditor"},
    ModelEndpoint: {"base_url": "https://models.example.org/v1"},
    Organization: {"name": "Other"},
    OwnServer: {"barred": "on"},
    User: {"first_name": "Other"},
}


def test_every_model_that_can_be_added_or_changed_is_tried() -> None:
    assert (set(NEW), set(CHANGED)) == (set(allowed("add")), set(allowed("change")))


@pytest.mark.parametrize("model", NEW)
def test_every_addition_is_recorded(model: Any, world: World) -> None:
    acme, client = world.acme.organization, client_of(world.root)
    rows = {"model": world.acme[Agent].model_id, "user": world.acme.people[Role.OWNER].pk, "organization": acme.pk}
    page = post_data(client.get(url(model, "add")))
    values = page | NEW[model] | {name: str(pk) for name, pk in rows.items() if name in page}
    assert client.post(url(model, "add"), values).status_code in (200, 302)
    found = [entry for entry in entries() if entry.action == verbs_of(model)[0]]
    assert [(entry.actor_id, entry.via) for entry in found] == [(world.root.pk, "admin")]
    row = model._default_manager.get(pk=found[0].object_id)
    assert row not in world.acme.rows.values()
    assert found[0].organization_id == (row.pk if model is Organization else acme.pk)
    assert found[0].details["fields"]


@pytest.mark.parametrize("model", CHANGED)
def test_every_change_is_recorded(model: Any, world: World) -> None:
    row = world.acme[model]
    assert edit(client_of(world.root), row, **CHANGED[model]).status_code == 302
    entry = only()
    assert (entry.action, entry.actor_id, entry.via) == (verbs_of(model)[1], world.root.pk, "admin")
    assert (entry.object_id, entry.organization_id) == (str(row.pk), world.acme.organization.pk)
    assert set(CHANGED[model]) <= set(entry.details["fields"])


@pytest.mark.parametrize("how", ["its page", "the list"])
@pytest.mark.parametrize("model", allowed("delete"))
def test_every_deletion_is_recorded(model: Any, how: str, world: World) -> None:
    client, row = client_of(world.root), world.acme[model]
    Agent.objects.as_system().exclude(pk=getattr(row, "pk", None)).update(model=world.globex[Agent].model)
    if how == "its page":
        client.post(url(model, "delete", row), {"post": "yes"})
    else:
        data = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
        client.post(url(model, "changelist"), data)
    assert not model._default_manager.filter(pk=row.pk).exists()
    entry = only()
    assert entry.object_id == str(row.pk)
    assert entry.organization_id == world.acme.organization.pk
    assert entry.action in {"group.deleted", "definition.deleted", "member.removed", "key.revoked"} | {
        "organization.deleted",
        "user.deleted",
    }


def test_what_is_refused_leaves_no_entry(admin: Client, world: World) -> None:
    edit(admin, membership(world.acme.people[Role.MEMBER]), role="owner")
    assert not entries()


def test_an_endpoint_that_is_asked_is_recorded(admin: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(_: object) -> EndpointReport:
        return EndpointReport("http://127.0.0.1:9/v1", ["gpt"])

    monkeypatch.setattr("agents.admin.test_endpoint", asked)
    admin.post(reverse("admin:agents_modelendpoint_test", args=[world.acme[ModelEndpoint].pk]))
    assert only().action == "connection.tested"


def test_no_admin_goes_round_the_recording() -> None:
    recorded = ("log_addition", "log_change", "log_deletions", "construct_change_message", "response_action")
    for model, admin in site._registry.items():
        assert isinstance(admin, TenantAdmin), model
        for name in recorded:
            assert getattr(type(admin), name) is getattr(TenantAdmin, name), (model, name)
