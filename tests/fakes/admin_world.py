"""Two organizations with everything in them, secrets too: what nobody of the one may see of the other.

Import the fixture `world` where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.admin import site
from django.db import models
from django.utils import timezone

from accounts import audit
from accounts.models import ApiKey, AuditAction, AuditRecord, Group, Membership, Organization, Role, User
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile
from conversations.models import Conversation, Message, Turn
from mcpservers.models import CatalogueEntry, MCPServer, OwnServer, ServerGrant, UserVariables

CANARY = "canary-7f3a"
CHAT = "canary-chat"  # what people said


@dataclass
class Tenant:
    """One organization. `rows` has a row of it for each registered model."""

    organization: Organization
    people: dict[Role, User]
    rows: dict[type[models.Model], models.Model] = field(default_factory=dict)

    def __getitem__(self, model: type[models.Model]) -> Any:
        return self.rows[model]


@dataclass
class World:
    acme: Tenant
    globex: Tenant
    root: User


def make_tenant(slug: str) -> Tenant:
    organization = Organization.objects.create(slug=slug, name=slug.title())
    people = {}
    for role in Role:
        user = User.objects.create_user(f"{slug}-{role}", f"{slug}-{role}@example.org", "correct horse battery")
        Membership.objects.create(user=user, organization=organization, role=role)
        people[role] = user
    tenant = Tenant(organization, people)
    member = people[Role.MEMBER]
    group = Group.objects.create(organization=organization, slug=f"{slug}-group")
    endpoint = ModelEndpoint.objects.create(
        organization=organization,
        slug=f"{slug}-endpoint",
        base_url="http://127.0.0.1:9/v1",
        api_key=f"{CANARY}-key",
        headers={"X-Endpoint": f"{CANARY}-header"},
    )
    profile = ModelProfile.objects.create(organization=organization, endpoint=endpoint, slug="gpt", name="gpt")
    server = MCPServer.objects.create(
        organization=organization,
        slug=f"{slug}-server",
        title=f"{slug} server",
        url="http://127.0.0.1:9/mcp",
        headers={"Authorization": f"Bearer {CANARY}-header"},
        oauth={"client_id": "c", "client_secret": f"{CANARY}-oauth"},
        variables={"TOKEN": {"title": "Token", "description": "", "sensitive": True}},
        rules=[{"tool": "*", "do": "ask"}],
    )
    UserVariables.objects.create(server=server, user=member, values={"TOKEN": f"{CANARY}-variable"})
    ServerGrant.objects.create(server=server, group=group)
    own = OwnServer.objects.create(
        organization=organization,
        owner=member,
        slug="my-server",
        title=f"{slug} own server",
        url=f"https://{slug}.example.org/mcp?key={CANARY}-query",
        headers={"Authorization": f"Bearer {CANARY}-own"},
    )
    CatalogueEntry.objects.create(
        server=server,
        definition_hash=server.definition_hash(),
        tools=[{"name": "look", "inputSchema": {"type": "object"}}],
        fetched_at=timezone.now(),
    )
    agent = Agent.objects.create(organization=organization, slug=f"{slug}-agent", name=f"{slug} agent", model=profile)
    AgentServer.objects.create(agent=agent, server=server)
    AgentGrant.objects.create(agent=agent, whole_organization=True)
    conversation = Conversation.objects.create(
        organization=organization, owner=member, agent=agent, title=f"{CHAT}-title", active_at=timezone.now()
    )
    question = Message.objects.create(
        conversation=conversation, role="user", parts=[{"type": "text", "text": CHAT}], search_text=CHAT
    )
    answer = Message.objects.create(conversation=conversation, parent=question, role="assistant", search_text=CHAT)
    Turn.objects.create(
        conversation=conversation,
        started_by=member,
        request_id=conversation.pk,
        user_message=question,
        message=answer,
        status="completed",
    )
    key, _ = ApiKey.issue(organization=organization, user=people[Role.OWNER], name=f"{slug}-key")
    membership = Membership.objects.get(user=member)
    audit.record(
        AuditAction.SIGN_IN,
        organization_id=organization.pk,
        actor_id=member.pk,
        server=server.slug,
        body={"arguments": f"{CANARY}-body"},
    )
    entry = AuditRecord.objects.as_system().get(organization_id=organization.pk)
    rows = (organization, group, endpoint, server, own, agent, conversation, key, membership, member, entry)
    tenant.rows = {type(row): row for row in rows}
    return tenant


@pytest.fixture
def world(db: None) -> World:
    made = World(
        make_tenant("acme"),
        make_tenant("globex"),
        User.objects.create_superuser("root", "root@example.org", "correct horse battery"),
    )
    assert set(made.acme.rows) == set(site._registry), "give the tenants a row of each registered model"
    return made


def post_data(page: Any) -> dict[str, Any]:
    """What a browser would send from the change or add form in `page` (a response of the test client)."""
    from html.parser import HTMLParser

    class Form(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.data: dict[str, Any] = {}
            self.select = self.textarea = ""
            self.inside = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = {name: value or "" for name, value in attrs}
            if tag == "form":
                self.inside = given.get("id", "").endswith("_form")
            if not self.inside:
                return
            name, kind = given.get("name", ""), given.get("type", "")
            if tag == "input" and name and kind != "submit":
                if kind not in ("checkbox", "radio"):
                    self.data[name] = given.get("value", "")
                elif "checked" in given:
                    self.data.setdefault(name, [])
                    self.data[name] = [*self.data[name], given.get("value") or "on"]
            elif tag == "select":
                self.select = name
            elif tag == "textarea":
                self.textarea = name
                self.data[name] = ""
            elif tag == "option" and self.select and "selected" in given:
                self.data[self.select] = given.get("value", "")

        def handle_endtag(self, tag: str) -> None:
            if tag == "select":
                self.select = ""
            elif tag == "textarea":
                self.data[self.textarea] = self.data[self.textarea].removeprefix("\r\n").removeprefix("\n")
                self.textarea = ""
            elif tag == "form":
                self.inside = False

        def handle_data(self, data: str) -> None:
            if self.textarea:
                self.data[self.textarea] += data

    form = Form()
    form.feed(page.content.decode())
    return form.data
