"""Who one is over HTTP, which organization counts, and one's own settings."""

from __future__ import annotations

import json
from typing import Any

from django.test import AsyncClient

from accounts.models import Membership, Organization, Role
from chatui.rows import in_rows
from tests.conversations.api.conftest import Enter, World


async def patch(client: AsyncClient, body: Any) -> Any:
    return await client.patch("/api/v1/me", json.dumps(body), content_type="application/json")


async def test_a_member_sees_who_and_where_one_is(world: World, as_user: Enter) -> None:
    answer = (await (await as_user(world.bob)).get("/api/v1/me")).json()
    assert answer == {
        "user": {
            "id": str(world.bob.pk),
            "username": "bob",
            "name": "",
            "email": "bob@example.org",
            "timezone": "",
            "preferences": {},
        },
        "organization": {"id": str(world.organization.pk), "slug": "acme", "name": "Acme", "role": "member"},
        "organizations": [{"slug": "acme", "name": "Acme"}],
    }


async def test_the_organization_is_the_named_one_else_the_last_used(
    world: World, as_user: Enter, as_key: Enter, other_organization: Organization
) -> None:
    second = await Membership.objects.acreate(user=world.bob, organization=other_organization, role=Role.GUEST)
    client = await as_user(world.bob)

    async def where(query: str = "") -> tuple[str, str]:
        organization = (await client.get(f"/api/v1/me{query}")).json()["organization"]
        return organization["slug"], organization["role"]

    assert await where() == ("acme", "member")  # joined first
    await in_rows(Membership.objects.filter(pk=second.pk).update, last_used_at="2026-01-01T00:00Z")
    assert await where() == ("globex", "guest")
    assert await where("?organization=acme") == ("acme", "member")
    assert len((await client.get("/api/v1/me")).json()["organizations"]) == 2
    client = await as_key(world.bob, world.organization)
    assert await where() == ("acme", "member")
    assert (await client.get("/api/v1/me")).json()["organizations"] == [{"slug": "acme", "name": "Acme"}]


async def test_settings_are_changed_one_by_one(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    assert (await patch(client, {"timezone": "Asia/Shanghai"})).json()["user"]["timezone"] == "Asia/Shanghai"
    answer = (await patch(client, {"preferences": {"theme": "dark"}})).json()
    assert answer["user"]["preferences"] == {"theme": "dark"}
    assert answer["user"]["timezone"] == "Asia/Shanghai"
    assert (await patch(client, {"timezone": ""})).json()["user"]["timezone"] == ""


async def test_a_user_without_any_organization_is_told_so(world: World, as_user: Enter) -> None:
    await Membership.objects.filter(user=world.bob).adelete()
    response = await (await as_user(world.bob)).get("/api/v1/me")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "not_a_member")
