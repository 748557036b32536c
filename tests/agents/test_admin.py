"""Endpoints and agents in the admin: secrets only written, models beside their endpoint, a test that asks it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import AsyncClient, Client

from accounts.models import Role
from agents.models import Agent, AgentGrant, ModelEndpoint, ModelProfile
from chatui.rows import in_rows
from mcpservers.models import MCPServer
from tests.accounts.test_tenant_admin import client_of, url
from tests.fakes.admin_world import CANARY, World, post_data
from tests.fakes.endpoint import Endpoint, endpoint, failure

__all__ = ["endpoint"]  # a fixture


def change(client: Client, row: Any, **values: Any) -> Any:
    address = url(type(row), "change", row)
    answer = client.post(address, post_data(client.get(address)) | values)
    row.refresh_from_db()
    return answer


def add(client: Client, kind: Any, **values: Any) -> Any:
    return client.post(url(kind, "add"), post_data(client.get(url(kind, "add"))) | values)


def errors(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200
    return dict(answer.context["adminform"].form.errors)


@pytest.mark.django_db
class TestEndpoints:
    def test_saving_again_keeps_the_key_and_the_headers(self, world: World) -> None:
        row = world.acme[ModelEndpoint]
        assert change(client_of(world.acme.people[Role.OWNER]), row, name="Renamed").status_code == 302
        assert (row.name, row.api_key, row.headers) == (
            "Renamed",
            f"{CANARY}-key",
            {"X-Endpoint": f"{CANARY}-header"},
        )

    def test_the_key_is_replaced_or_cleared(self, world: World) -> None:
        client, row = client_of(world.acme.people[Role.OWNER]), world.acme[ModelEndpoint]
        change(client, row, api_key=" new ")
        assert row.api_key == "new"
        change(client, row, **{"api_key-clear": "on"})
        assert row.api_key == ""

    def test_a_new_address_drops_the_key_and_says_so(self, world: World) -> None:
        client, row = client_of(world.acme.people[Role.OWNER]), world.acme[ModelEndpoint]
        answer = change(client, row, base_url="https://elsewhere.example.org/v1")
        assert (row.api_key, row.headers) == ("", {})
        said = " ".join(str(message) for message in get_messages(answer.wsgi_request))
        assert "API key, X-Endpoint" in said
        assert CANARY not in said

    def test_a_key_entered_together_with_the_new_address_is_kept(self, world: World) -> None:
        row = world.acme[ModelEndpoint]
        change(client_of(world.acme.people[Role.OWNER]), row, base_url="https://elsewhere.example.org/v1", api_key="k")
        assert (row.api_key, row.headers) == ("k", {})

    @pytest.mark.parametrize(
        ("values", "field"),
        [
            ({"base_url": ""}, "base_url"),
            ({"base_url": "api.example.org"}, "base_url"),
            ({"base_url": "ftp://api.example.org"}, "base_url"),
            ({"base_url": "https://api.example.org/{{user.name}}"}, "base_url"),
            ({"base_url": "https://k:s@api.example.org"}, "base_url"),
            ({"extra_body": "[]"}, "extra_body"),
            ({"extra_body": "{"}, "extra_body"),
            ({"headers-1-name": "a b", "headers-1-value": "c"}, "headers"),
            ({"retries": "99"}, "retries"),
            ({"first_token_timeout": "0"}, "first_token_timeout"),
            ({"slug": "Not one"}, "slug"),
        ],
    )
    def test_what_cannot_work_is_refused_by_its_field(self, world: World, values: dict[str, str], field: str) -> None:
        assert field in errors(change(client_of(world.acme.people[Role.OWNER]), world.acme[ModelEndpoint], **values))

    def test_a_model_is_made_beside_its_endpoint_and_belongs_to_its_organization(self, world: World) -> None:
        row = world.acme[ModelEndpoint]
        model = {
            "models-TOTAL_FORMS": "2",
            "models-1-slug": "mini",
            "models-1-name": "gpt-5-mini",
            "models-1-context": "9",
        }
        more = {"models-1-max_tokens_parameter": "max_tokens", "models-1-system_role": "system"}
        answer = change(client_of(world.acme.people[Role.ADMIN]), row, **model, **more)
        assert answer.status_code == 302
        made = ModelProfile.objects.as_system().get(slug="mini")
        assert (made.endpoint, made.organization, made.name) == (row, world.acme.organization, "gpt-5-mini")

    def test_a_model_that_an_agent_uses_is_not_deleted_and_the_page_says_why(self, world: World) -> None:
        client, row = client_of(world.acme.people[Role.OWNER]), world.acme[ModelEndpoint]
        chosen = {"action": "delete_selected", "_selected_action": str(row.pk)}
        listed = f"{url(ModelEndpoint, 'changelist')}?q=acme"
        for answer, back in (
            (client.get(url(ModelEndpoint, "delete", row)), "../"),
            (client.post(listed, chosen), listed),
        ):
            page = answer.content.decode()
            assert "acme agent" in page
            assert "cannot be deleted yet" in page
            assert "would require deleting" not in page
            assert f'href="{back}"' in page
        client.post(listed, chosen | {"post": "yes"})
        client.post(url(ModelEndpoint, "delete", row), {"post": "yes"})
        assert ModelEndpoint.objects.as_system().filter(pk=row.pk).exists()


@pytest.mark.django_db
class TestAgents:
    def test_one_is_made_with_servers_tools_and_grants(self, world: World) -> None:
        values = {
            "name": "New",
            "slug": "new",
            "model": str(world.acme[Agent].model_id),
            "starters": "What now?\r\nAnd then?",
            "rules-0-tool": "acme-server__*",
            "rules-0-do": "allow",
            "servers-TOTAL_FORMS": "1",
            "servers-0-server": str(world.acme[MCPServer].pk),
            "servers-0-tools": "look\r\nget_*",
            "servers-0-position": "0",
            "grants-TOTAL_FORMS": "1",
            "grants-0-user": str(world.acme.people[Role.GUEST].pk),
        }
        answer = add(client_of(world.acme.people[Role.ADMIN]), Agent, **values)
        assert answer.status_code == 302, errors(answer)
        agent = Agent.objects.as_system().get(slug="new")
        assert (agent.organization, agent.starters) == (world.acme.organization, ["What now?", "And then?"])
        assert agent.rules[0]["do"] == "allow"
        assert [(item.server, item.tools) for item in agent.servers.all()] == [
            (world.acme[MCPServer], ["look", "get_*"])
        ]
        assert AgentGrant.objects.get(agent=agent).user == world.acme.people[Role.GUEST]

    @pytest.mark.parametrize(
        ("values", "field"),
        [({"model": ""}, "model"), ({"temperature": "3"}, "temperature"), ({"max_rounds": "0"}, "max_rounds")],
    )
    def test_what_cannot_work_is_refused_by_its_field(self, world: World, values: dict[str, str], field: str) -> None:
        assert field in errors(change(client_of(world.acme.people[Role.OWNER]), world.acme[Agent], **values))

    def test_a_server_twice_is_refused(self, world: World) -> None:
        again = {
            "servers-TOTAL_FORMS": "2",
            "servers-1-server": str(world.acme[MCPServer].pk),
            "servers-1-position": "1",
        }
        answer = change(client_of(world.acme.people[Role.OWNER]), world.acme[Agent], **again)
        assert answer.status_code == 200
        assert world.acme[Agent].servers.count() == 1


# --- The test of an endpoint ------------------------------------------------------------------------------------------


@pytest.fixture
def row(transactional_db: None, world: World, endpoint: Endpoint) -> ModelEndpoint:
    found: ModelEndpoint = world.acme[ModelEndpoint]
    found.base_url = endpoint.base_url.removesuffix("/v1") + "/"
    found.save()
    return found


async def test_of(row: ModelEndpoint, world: World) -> Any:
    client = AsyncClient()
    await client.aforce_login(world.acme.people[Role.ADMIN])
    return await client.post(url(ModelEndpoint, "test", row))


test_of.__test__ = False  # what tests call


async def test_it_shows_the_effective_address_and_the_models(
    row: ModelEndpoint, world: World, endpoint: Endpoint
) -> None:
    endpoint.models = ["gpt", "other"]
    answer = await test_of(row, world)
    text = answer.content.decode()
    assert "It works." in text
    assert f"{endpoint.base_url}<" in text  # /v1 was added
    assert "gpt <strong>(set up here)</strong>" in text
    assert "other" in text
    assert endpoint.listings[0].headers["authorization"] == f"Bearer {CANARY}-key"
    assert CANARY not in text


async def test_a_model_that_is_not_listed_is_pointed_out(row: ModelEndpoint, world: World, endpoint: Endpoint) -> None:
    endpoint.models = ["other"]
    answer = await test_of(row, world)
    assert answer.context["missing"] == ["gpt"]


async def test_what_the_endpoint_says_is_shown_without_the_key_that_it_quotes(
    row: ModelEndpoint, world: World, endpoint: Endpoint
) -> None:
    endpoint.listing = failure(400, f"Bad key {CANARY}-key for header {CANARY}-header")
    answer = await test_of(row, world)
    text = answer.content.decode()
    assert "It did not work." in text
    assert CANARY not in text


async def test_an_endpoint_that_is_not_there_is_told(row: ModelEndpoint, world: World) -> None:
    row.base_url = "http://127.0.0.1:9/v1"
    await in_rows(row.save)
    assert "It did not work." in (await test_of(row, world)).content.decode()
