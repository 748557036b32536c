"""Every registered admin × everybody: only what is one's own, only what one may, and never a secret.

Pages that are no lists and no forms are in `tests/architecture/test_admin_doors.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin import ModelAdmin, site
from django.contrib.admin.models import LogEntry
from django.db import models
from django.test import Client
from django.urls import reverse

from accounts.models import ApiKey, AuditRecord, Membership, Organization, Role, User
from accounts.tenant_admin import TenantAdmin
from agents.models import Agent, ModelEndpoint
from conversations.models import Conversation
from mcpservers.models import MCPServer, ServerGrant
from mcpservers.serverlog import ServerLog, path_of
from tests.fakes.admin_world import CANARY, CHAT, World, post_data

pytestmark = pytest.mark.django_db
MODELS = sorted(site._registry, key=lambda model: model.__name__)


def client_of(user: User | None) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client


def url(model: type[models.Model], page: str, row: Any = None) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    return reverse(name, args=[row.pk] if row is not None else [])


def admin_of(model: type[models.Model]) -> ModelAdmin[Any]:
    return site._registry[model]


def deletable(model: type[models.Model]) -> bool:
    return model not in (AuditRecord, Conversation, User)


def listed(client: Client, model: type[models.Model]) -> set[Any]:
    page = client.get(url(model, "changelist"))
    assert page.status_code == 200
    return {row.pk for row in page.context["cl"].queryset}


def test_every_registered_admin_and_inline_knows_organizations() -> None:
    for model, model_admin in site._registry.items():
        assert isinstance(model_admin, TenantAdmin), model
        for inline in model_admin.inlines:
            assert inline.__mro__[2].__name__ == "_TenantInline", inline


@pytest.mark.parametrize("model", MODELS)
class TestMatrix:
    def test_a_stranger_is_sent_to_the_ordinary_sign_in(self, world: World, model: type[models.Model]) -> None:
        answer = client_of(None).get(url(model, "changelist"), follow=True)
        assert answer.redirect_chain[-1][0].startswith("/accounts/login/?next=")

    @pytest.mark.parametrize("role", [Role.MEMBER, Role.GUEST])
    def test_who_manages_nothing_does_not_enter(self, world: World, model: type[models.Model], role: Role) -> None:
        client = client_of(world.acme.people[role])
        for page in ("changelist", "change", "delete", "history"):
            row = None if page == "changelist" else world.acme[model]
            assert client.get(url(model, page, row), follow=True).status_code == 403

    @pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
    def test_who_manages_another_organization_finds_nothing(
        self, world: World, model: type[models.Model], role: Role
    ) -> None:
        client = client_of(world.globex.people[role])
        mine, theirs = world.globex[model], world.acme[model]
        if model is AuditRecord and role is Role.ADMIN:  # whose own acts are told there
            assert client.get(url(model, "changelist")).status_code == 403
            return
        found = listed(client, model)
        assert mine.pk in found
        assert theirs.pk not in found
        for page in ("change", "delete", "history"):
            answer = client.get(url(model, page, theirs))
            # Where nobody may delete anything, that is said before the row is looked for.
            assert answer.status_code == 403 if page == "delete" and not deletable(model) else 302
            assert answer.get("Location") in (reverse("admin:index"), None)
            assert client.post(url(model, page, theirs), {"post": "yes"}).status_code in (302, 403)
        assert type(theirs)._default_manager.filter(pk=theirs.pk).exists()

    def test_an_auditor_looks_and_changes_nothing(self, world: World, model: type[models.Model]) -> None:
        client = client_of(world.acme.people[Role.AUDITOR])
        row = world.acme[model]
        assert row.pk in listed(client, model)
        assert world.globex[model].pk not in listed(client, model)
        page = client.get(url(model, "change", row))
        assert page.status_code == 200
        assert not re.search(r'name="_(save|continue|addanother)"', page.content.decode())
        assert client.post(url(model, "change", row), {}).status_code == 403
        assert client.get(url(model, "delete", row)).status_code == 403
        if not admin_of(model).view_only:
            assert client.get(url(model, "add")).status_code == 403

    def test_an_owner_finds_what_is_their_own(self, world: World, model: type[models.Model]) -> None:
        client = client_of(world.acme.people[Role.OWNER])
        assert world.acme[model].pk in listed(client, model)
        assert world.globex[model].pk not in listed(client, model)
        assert client.get(url(model, "change", world.acme[model])).status_code == 200

    def test_a_superuser_finds_everything(self, world: World, model: type[models.Model]) -> None:
        client = client_of(world.root)
        assert {world.acme[model].pk, world.globex[model].pk} <= listed(client, model)
        for tenant in (world.acme, world.globex):
            assert client.get(url(model, "change", tenant[model])).status_code == 200

    def test_who_was_demoted_or_removed_is_out_at_once(self, world: World, model: type[models.Model]) -> None:
        owner = world.acme.people[Role.OWNER]
        client = client_of(owner)
        assert client.get(url(model, "changelist")).status_code == 200
        Membership.objects.filter(user=owner).update(role=Role.MEMBER)
        assert client.get(url(model, "changelist"), follow=True).status_code == 403
        Membership.objects.filter(user=owner).update(role=Role.OWNER, is_active=False)
        assert client.get(url(model, "changelist"), follow=True).status_code == 403

    def test_an_inactive_organization_lets_nobody_in(self, world: World, model: type[models.Model]) -> None:
        Organization.objects.filter(slug="acme").update(is_active=False)
        client = client_of(world.acme.people[Role.OWNER])
        assert client.get(url(model, "changelist"), follow=True).status_code == 403

    def test_is_staff_alone_opens_nothing(self, world: World, model: type[models.Model]) -> None:
        member = world.acme.people[Role.MEMBER]
        User.objects.filter(pk=member.pk).update(is_staff=True)
        assert client_of(member).get(url(model, "changelist"), follow=True).status_code == 403

    def test_filters_name_only_one_s_own(self, world: World, model: type[models.Model]) -> None:
        page = client_of(world.acme.people[Role.OWNER]).get(url(model, "changelist")).content.decode()
        assert "globex" not in page.lower()

    def test_a_bulk_action_on_another_s_row_touches_nothing(self, world: World, model: type[models.Model]) -> None:
        theirs = world.acme[model]
        client = client_of(world.globex.people[Role.OWNER])
        for action in ("delete_selected", "revoke"):
            data = {"action": action, "_selected_action": [str(theirs.pk)], "post": "yes"}
            client.post(url(model, "changelist"), data)
        fresh = type(theirs)._default_manager.get(pk=theirs.pk)
        assert getattr(fresh, "revoked_at", None) is None

    def test_choices_hold_nothing_of_another_organization(self, world: World, model: type[models.Model]) -> None:
        client = client_of(world.acme.people[Role.OWNER])
        pages = [client.get(url(model, "change", world.acme[model]))]
        if not admin_of(model).view_only:
            pages.append(client.get(url(model, "add")))
        for page in pages:
            assert page.status_code in (200, 403)
            assert "globex" not in page.content.decode().lower()


@pytest.mark.parametrize(
    ("model", "page"),
    [(MCPServer, "test"), (MCPServer, "refresh"), (MCPServer, "reconnect"), (ModelEndpoint, "test")],
)
def test_the_buttons_of_another_s_row_do_nothing(world: World, model: type[models.Model], page: str) -> None:
    address = url(model, page, world.acme[model])
    assert client_of(world.globex.people[Role.OWNER]).post(address)["Location"] == reverse("admin:index")
    assert client_of(world.acme.people[Role.AUDITOR]).post(address)["Location"] == reverse("admin:index")
    assert client_of(world.acme.people[Role.OWNER]).get(address).status_code == 405
    assert client_of(world.acme.people[Role.MEMBER]).post(address, follow=True).status_code == 403


def test_the_log_of_a_process_is_for_who_runs_the_machine_and_holds_no_secret_of_ours(
    world: World, settings: Any, tmp_path: Any
) -> None:
    settings.VAR_DIR = tmp_path
    server = world.acme[MCPServer]
    ServerLog(path_of(server.pk)).write(f"started <b> with {CANARY}-variable and Bearer {CANARY}-header\n".encode())
    address = url(MCPServer, "log", server)
    for person in (world.acme.people[Role.OWNER], world.acme.people[Role.AUDITOR], world.globex.people[Role.OWNER]):
        assert client_of(person).get(address).status_code == 302
    page = client_of(world.root).get(address).content.decode()
    assert "started &lt;b&gt; with •••• and ••••" in page
    assert CANARY not in page


def test_the_overview_counts_one_s_own_and_names_what_cannot_be_used(world: World) -> None:
    ServerGrant.objects.all().delete()
    MCPServer.objects.as_system().update(last_error="The connection was refused.")
    client = client_of(world.acme.people[Role.AUDITOR])
    page = client.get(reverse("admin:index"))
    assert [card.number for card in page.context["cards"]] == [1, 1, 1, 5, 1]
    assert not any(card.add for card in page.context["cards"])
    texts = " ".join(hint.text for hint in page.context["hints"])
    assert "The connection was refused." in texts
    assert "it has no grant" in texts
    assert "globex" not in page.content.decode().lower()


def test_autocompletion_offers_only_one_s_own(world: World) -> None:
    address = reverse("admin:autocomplete")
    found = {}
    for user in (world.acme.people[Role.OWNER], world.root):
        for app, model, name in (
            ("mcpservers", "mcpserver", "organization"),
            ("accounts", "membership", "user"),
            ("mcpservers", "servergrant", "group"),
        ):
            query = {"app_label": app, "model_name": model, "field_name": name, "term": ""}
            answer = client_of(user).get(address, query)
            found[user.username, name] = answer.content.decode().lower() if answer.status_code == 200 else ""
    assert "globex" in found["root", "organization"]
    assert "acme" in found["acme-owner", "organization"]
    assert not any("globex" in text for (name, _), text in found.items() if name == "acme-owner")


def test_a_lookup_in_the_address_does_not_reach_into_other_rows(world: World) -> None:
    """`?user__password__startswith=` would tell a hash letter by letter, `?api_key__startswith=` a key."""
    client = client_of(world.acme.people[Role.OWNER])
    for model, lookup in (
        (Membership, "user__password__startswith"),
        (User, "password__startswith"),
        (ModelEndpoint, "api_key__startswith"),
        (ApiKey, "hash__startswith"),
        (Conversation, "title__startswith"),
        (Conversation, "messages__search_text__contains"),
        (MCPServer, "organization__memberships__user__password__startswith"),
    ):
        answer = client.get(url(model, "changelist"), {lookup: "a"})
        assert answer.status_code in (302, 400), (model, lookup)


def test_a_foreign_row_in_a_posted_form_is_refused(world: World) -> None:
    client = client_of(world.acme.people[Role.OWNER])
    page = client.get(url(Agent, "change", world.acme[Agent]))
    foreign = Agent.objects.as_system().get(slug="globex-agent").model_id
    answer = client.post(url(Agent, "change", world.acme[Agent]), post_data(page) | {"model": str(foreign)})
    assert "model" in answer.context["adminform"].form.errors
    page = client.get(url(MCPServer, "change", world.acme[MCPServer]))
    stranger = world.globex.people[Role.MEMBER]
    data = post_data(page) | {
        "grants-TOTAL_FORMS": "2",
        "grants-1-user": str(stranger.pk),
        "grants-1-server": str(world.acme[MCPServer].pk),
    }
    assert client.post(url(MCPServer, "change", world.acme[MCPServer]), data).status_code == 200
    assert not ServerGrant.objects.filter(user=stranger).exists()


def test_even_a_superuser_does_not_mix_organizations(world: World) -> None:
    client = client_of(world.root)
    data = post_data(client.get(url(Agent, "add"))) | {
        "organization": str(world.acme.organization.pk),
        "name": "Mixed",
        "slug": "mixed",
        "model": str(world.globex[Agent].model_id),
    }
    answer = client.post(url(Agent, "add"), data)
    assert answer.context["adminform"].form.errors["model"] == ["Choose something of the same organization."]
    page = client.get(url(Agent, "change", world.acme[Agent]))
    moved = post_data(page) | {"organization": str(world.globex.organization.pk)}
    client.post(url(Agent, "change", world.acme[Agent]), moved)
    assert Agent.objects.as_system().get(pk=world.acme[Agent].pk).organization == world.acme.organization


def test_one_who_manages_two_organizations_sees_both_and_audits_a_third(world: World) -> None:
    person = world.acme.people[Role.ADMIN]
    third = Organization.objects.create(slug="third", name="Third")
    Membership.objects.create(user=person, organization=world.globex.organization, role=Role.ADMIN)
    Membership.objects.create(user=person, organization=third, role=Role.AUDITOR)
    theirs = Agent.objects.create(
        organization=third, slug="third-agent", name="Third agent", model=world.acme[Agent].model
    )
    client = client_of(person)
    assert {world.acme[Agent].pk, world.globex[Agent].pk, theirs.pk} == listed(client, Agent)
    assert client.post(url(Agent, "change", theirs), {}).status_code == 403
    client.post(
        url(Agent, "changelist"), {"action": "delete_selected", "_selected_action": [str(theirs.pk)], "post": "yes"}
    )
    assert Agent.objects.as_system().filter(pk=theirs.pk).exists()


def test_the_filters_work(world: World) -> None:
    client = client_of(world.root)
    acme = world.acme.organization
    for model, query, number in (
        (Agent, {"organization__id__exact": str(acme.pk)}, 1),
        (MCPServer, {"transport__exact": "stdio"}, 0),
        (MCPServer, {"enabled__exact": "1"}, 2),
        (Membership, {"role__exact": "owner", "organization__id__exact": str(acme.pk)}, 1),
        (Membership, {"groups__isnull": "True"}, 10),
        (Conversation, {"agent__id__exact": str(world.acme[Agent].pk)}, 1),
    ):
        page = client.get(url(model, "changelist"), query)
        assert page.status_code == 200, query
        assert page.context["cl"].result_count == number, query


# --- Secrets ----------------------------------------------------------------------------------------------------------


def every_page(world: World, client: Client) -> Any:
    """(address, text) of every page of the admin that a GET gives."""
    for name in ("index", "connections"):
        yield name, client.get(reverse(f"admin:{name}"))
    yield "log", client.get(url(MCPServer, "log", world.acme[MCPServer]))
    yield "search", client.get(reverse("admin:search"), {"s": "a", "extended": ""})
    for model in MODELS:
        yield url(model, "changelist"), client.get(url(model, "changelist"))
        yield url(model, "add"), client.get(url(model, "add"))
        for page in ("change", "delete", "history"):
            yield url(model, page, world.acme[model]), client.get(url(model, page, world.acme[model]))


@pytest.mark.parametrize("who", ["root", Role.OWNER, Role.ADMIN, Role.AUDITOR])
def test_no_page_holds_a_secret_or_what_people_said(world: World, who: str) -> None:
    user = world.root if who == "root" else world.acme.people[Role(who)]
    seen = 0
    for address, answer in every_page(world, client_of(user)):
        text = answer.content.decode() + str(answer.headers)
        assert CANARY not in text, address
        assert CHAT not in text, address
        seen += answer.status_code == 200
    assert seen > 2 * len(MODELS)


def test_an_edit_leaves_no_secret_in_the_history(world: World) -> None:
    client = client_of(world.root)
    for model in (MCPServer, ModelEndpoint):
        row = world.acme[model]
        data = post_data(client.get(url(model, "change", row)))
        prefix = "headers-0-"
        data |= {prefix + "value": f"{CANARY}-new", "api_key": f"{CANARY}-new", "timeout": "33", "retries": "3"}
        assert client.post(url(model, "change", row), data).status_code == 302
        page = client.get(url(model, "history", row))
        assert "Changed" in page.content.decode()
        assert CANARY not in page.content.decode()
    assert LogEntry.objects.exists()
    assert not any(CANARY in str(entry.__dict__) for entry in LogEntry.objects.all())


def test_a_form_with_an_error_does_not_give_typed_secrets_back(world: World) -> None:
    client = client_of(world.acme.people[Role.OWNER])
    row = world.acme[ModelEndpoint]
    data = post_data(client.get(url(ModelEndpoint, "change", row)))
    data |= {"api_key": f"{CANARY}-typed", "headers-0-value": f"{CANARY}-typed", "base_url": "nonsense"}
    answer = client.post(url(ModelEndpoint, "change", row), data)
    assert answer.status_code == 200
    assert CANARY not in answer.content.decode()
