"""People in the admin: who names whom, who may take what from whom, and a key that is shown once."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import ApiKey, Group, Membership, Organization, Role, User, digest
from conversations.models import Conversation
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import World, post_data

pytestmark = pytest.mark.django_db


def errors(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


def edit(client: Client, row: Any, **changes: Any) -> Any:
    address = url(type(row), "change", row)
    return client.post(address, post_data(client.get(address)) | changes)


def add(client: Client, model: Any, **values: Any) -> Any:
    return client.post(url(model, "add"), post_data(client.get(url(model, "add"))) | values)


def membership(user: User) -> Membership:
    return Membership.objects.get(user=user)


class TestMembers:
    def test_an_admin_makes_a_member_of_an_existing_user_by_address(self, world: World) -> None:
        stranger = world.globex.people[Role.MEMBER]
        answer = add(client_of(world.acme.people[Role.ADMIN]), Membership, person=stranger.email, role="guest")
        assert answer.status_code == 302
        assert stranger.memberships.get(organization=world.acme.organization).role == Role.GUEST

    def test_who_does_not_exist_or_is_a_member_already_is_told(self, world: World) -> None:
        client = client_of(world.acme.people[Role.ADMIN])
        assert "person" in errors(add(client, Membership, person="nobody", role="member"))
        assert "person" in errors(add(client, Membership, person="acme-guest", role="member"))

    @pytest.mark.parametrize("role", [Role.MEMBER, Role.AUDITOR, Role.ADMIN])
    def test_an_admin_gives_any_role_but_owner(self, world: World, role: Role) -> None:
        client, member = client_of(world.acme.people[Role.ADMIN]), membership(world.acme.people[Role.MEMBER])
        assert edit(client, member, role=role).status_code == 302
        assert "role" in errors(edit(client, member, role="owner"))
        member.refresh_from_db()
        assert member.role == role

    def test_an_admin_does_not_touch_an_owner(self, world: World) -> None:
        client, owner = client_of(world.acme.people[Role.ADMIN]), membership(world.acme.people[Role.OWNER])
        assert client.post(url(Membership, "change", owner), {"role": "guest"}).status_code == 403
        assert client.post(url(Membership, "delete", owner), {"post": "yes"}).status_code == 403
        data = {"action": "delete_selected", "_selected_action": [str(owner.pk)], "post": "yes"}
        client.post(url(Membership, "changelist"), data)
        assert Membership.objects.filter(pk=owner.pk, role=Role.OWNER).exists()

    def test_an_owner_names_another_and_may_then_go(self, world: World) -> None:
        owner = world.acme.people[Role.OWNER]
        client, own = client_of(owner), membership(owner)
        assert "last owner" in str(errors(edit(client, own, role="member")))
        assert client.post(url(Membership, "delete", own), {"post": "yes"}).status_code == 403
        assert edit(client, membership(world.acme.people[Role.ADMIN]), role="owner").status_code == 302
        assert edit(client, own, role="member").status_code == 302

    def test_the_last_owner_is_not_switched_off_but_by_a_superuser(self, world: World) -> None:
        own = membership(world.acme.people[Role.OWNER])
        off = post_data(client_of(world.root).get(url(Membership, "change", own)))
        off.pop("is_active")
        assert "role" in errors(client_of(world.acme.people[Role.OWNER]).post(url(Membership, "change", own), off))
        assert client_of(world.root).post(url(Membership, "change", own), off).status_code == 302

    def test_a_group_s_members_are_chosen_among_the_organization_s(self, world: World) -> None:
        client, group = client_of(world.acme.people[Role.ADMIN]), world.acme[Group]
        mine, theirs = membership(world.acme.people[Role.MEMBER]), membership(world.globex.people[Role.MEMBER])
        assert edit(client, group, members=[str(mine.pk)]).status_code == 302
        assert list(group.memberships.all()) == [mine]
        assert "members" in errors(edit(client, group, members=[str(theirs.pk)]))


class TestUsers:
    def test_an_admin_makes_a_user_with_a_first_membership(self, world: World) -> None:
        client = client_of(world.acme.people[Role.ADMIN])
        answer = add(client, User, username="new", email="new@example.org", new_password="correct horse battery")
        assert answer.status_code == 302
        user = User.objects.get(username="new")
        assert user.check_password("correct horse battery")
        assert (membership(user).organization, membership(user).role) == (world.acme.organization, Role.MEMBER)
        assert not user.is_superuser

    def test_without_a_password_nobody_can_guess_it(self, world: World) -> None:
        add(client_of(world.acme.people[Role.ADMIN]), User, username="new")
        assert not User.objects.get(username="new").has_usable_password()

    def test_an_admin_makes_no_superuser_no_owner_and_nobody_elsewhere(self, world: World) -> None:
        client = client_of(world.acme.people[Role.ADMIN])
        add(client, User, username="new", is_superuser="on")
        assert not User.objects.get(username="new").is_superuser
        assert "role" in errors(add(client, User, username="owner2", role="owner"))
        elsewhere = str(world.globex.organization.pk)
        assert "organization" in errors(add(client, User, username="spy", organization=elsewhere))

    def test_a_weak_password_is_refused_by_its_field(self, world: World) -> None:
        assert "new_password" in errors(add(client_of(world.root), User, username="new", new_password="12345"))

    @pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN])
    def test_nobody_but_a_superuser_changes_a_user(self, world: World, role: Role) -> None:
        """Who could set a member's password would enter every organization of that member."""
        client, member = client_of(world.acme.people[role]), world.acme.people[Role.MEMBER]
        assert client.post(url(User, "change", member), {"new_password": "correct horse battery"}).status_code == 403
        assert client.post(url(User, "delete", member), {"post": "yes"}).status_code == 403

    def test_a_superuser_sets_a_password_and_leaving_it_empty_keeps_it(self, world: World) -> None:
        client, member = client_of(world.root), world.acme.people[Role.MEMBER]
        assert edit(client, member, new_password="another horse battery").status_code == 302
        assert edit(client, member, first_name="Mira").status_code == 302
        member.refresh_from_db()
        assert member.first_name == "Mira"
        assert member.check_password("another horse battery")

    def test_what_other_admins_did_with_a_user_is_not_told(self, world: World) -> None:
        edit(client_of(world.root), world.acme.people[Role.MEMBER], first_name="Mira")
        address = url(User, "history", world.acme.people[Role.MEMBER])
        assert client_of(world.acme.people[Role.OWNER]).get(address).status_code == 302
        assert client_of(world.root).get(address).status_code == 200


class TestKeys:
    def test_a_key_is_shown_once_and_only_its_digest_is_stored(self, world: World) -> None:
        client = client_of(world.acme.people[Role.ADMIN])
        answer = add(client, ApiKey, name="mine", scopes=["chat", "read"])
        secret = answer.context["secret"]
        assert answer.status_code == 200
        assert secret in answer.content.decode()
        assert "no-store" in answer["Cache-Control"]
        key = ApiKey.objects.get(name="mine")
        assert (key.hash, key.scopes, key.user) == (digest(secret), ["chat", "read"], world.acme.people[Role.ADMIN])
        for page in ("changelist", "change", "history"):
            shown = client.get(url(ApiKey, page, None if page == "changelist" else key)).content.decode()
            assert secret not in shown
        assert ApiKey.objects.filter(name="mine").count() == 1

    def test_a_key_of_somebody_else_would_be_that_person_and_is_refused(self, world: World) -> None:
        member = str(world.acme.people[Role.MEMBER].pk)
        client = client_of(world.acme.people[Role.OWNER])
        assert "user" in errors(add(client, ApiKey, name="x", user=member, scopes=["chat"]))
        made = add(
            client_of(world.root),
            ApiKey,
            name="x",
            user=member,
            scopes=["chat"],
            organization=str(world.acme.organization.pk),
        )
        assert ApiKey.objects.get(name="x").user.pk == world.acme.people[Role.MEMBER].pk
        assert made.status_code == 200

    def test_an_unknown_scope_is_refused(self, world: World) -> None:
        assert "scopes" in errors(add(client_of(world.acme.people[Role.ADMIN]), ApiKey, name="x", scopes=["root"]))

    def test_an_admin_revokes_and_deletes_any_key_of_the_organization(self, world: World) -> None:
        client, key = client_of(world.acme.people[Role.ADMIN]), world.acme[ApiKey]
        client.post(url(ApiKey, "changelist"), {"action": "revoke", "_selected_action": [str(key.pk)]})
        key.refresh_from_db()
        assert key.revoked_at is not None
        assert client.post(url(ApiKey, "delete", key), {"post": "yes"}).status_code == 302
        assert not ApiKey.objects.filter(pk=key.pk).exists()

    def test_a_key_is_never_changed(self, world: World) -> None:
        key = world.acme[ApiKey]
        assert client_of(world.root).post(url(ApiKey, "change", key), {"name": "other"}).status_code == 403


class TestOrganizations:
    def test_an_owner_renames_it_and_nothing_else(self, world: World) -> None:
        organization = world.acme.organization
        edit(client_of(world.acme.people[Role.OWNER]), organization, name="Acme Inc", slug="other")
        organization.refresh_from_db()
        assert (organization.name, organization.slug) == ("Acme Inc", "acme")
        assert client_of(world.acme.people[Role.OWNER]).get(url(Organization, "add")).status_code == 403

    def test_an_owner_deletes_it_with_all_that_is_in_it_an_admin_does_not(self, world: World) -> None:
        address = url(Organization, "delete", world.acme.organization)
        assert client_of(world.acme.people[Role.ADMIN]).post(address, {"post": "yes"}).status_code == 403
        page = client_of(world.acme.people[Role.OWNER]).get(address).content.decode()
        assert "canary" not in page
        assert client_of(world.acme.people[Role.OWNER]).post(address, {"post": "yes"}).status_code == 302
        assert not Organization.objects.filter(slug="acme").exists()
        assert User.objects.filter(username="acme-member").exists()
        assert Conversation.objects.as_system().count() == 1

    def test_a_superuser_makes_one(self, world: World) -> None:
        assert add(client_of(world.root), Organization, name="Initech", slug="initech").status_code == 302
        assert "slug" in errors(add(client_of(world.root), Organization, name="X", slug="Not a slug"))


@pytest.mark.parametrize("model", [Organization, Group])
def test_a_name_makes_the_slug_of_what_is_new_and_of_nothing_else(world: World, model: type[Any]) -> None:
    client = client_of(world.root)
    assert client.get(url(model, "add")).context["adminform"].prepopulated_fields
    row = world.acme.organization if model is Organization else world.acme[Group]
    assert not client.get(url(model, "change", row)).context["adminform"].prepopulated_fields


def test_an_empty_list_says_so_and_offers_no_more_than_one_may(world: World) -> None:
    address = url(Group, "changelist") + "?q=nowhere"
    pages = {
        role: client_of(world.acme.people[role]).get(address).content.decode() for role in (Role.OWNER, Role.AUDITOR)
    }
    assert "yielded" not in "".join(pages.values())
    assert all("Nothing here matches." in page for page in pages.values())
    assert ["Add group" in page for page in pages.values()] == [True, False]


def test_the_admin_s_own_pages_for_passwords_lead_to_the_ordinary_ones(world: World) -> None:
    client = client_of(world.acme.people[Role.OWNER])
    assert client.get(reverse("admin:password_change"))["Location"] == reverse("account_change_password")
    assert client.post(reverse("admin:logout")).status_code == 302
    assert "login" in client.get(reverse("admin:index"), follow=True).redirect_chain[-1][0]


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_signing_in_does_not_lead_elsewhere(world: World, target: str) -> None:
    answer = client_of(None).get(reverse("admin:login"), {"next": target})
    assert answer["Location"] == "/accounts/login/?next=%2Fadmin%2F"
    assert client_of(world.root).get(reverse("admin:login"), {"next": target})["Location"] == "/admin/"


class TestTheOnlyOrganization:
    def test_it_is_chosen_already_where_there_is_no_other(self, admin_client: Client) -> None:
        only = Organization.objects.create(slug="only", name="Only")
        form = admin_client.get(url(Group, "add")).context["adminform"].form
        assert form.initial["organization"] == only.pk
        Organization.objects.create(slug="other", name="Other")
        assert "organization" not in admin_client.get(url(Group, "add")).context["adminform"].form.initial
