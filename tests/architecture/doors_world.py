"""Two organizations with everybody who might knock, and a row of each kind that an address or a frame can name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from accounts import audit
from accounts.models import ApiKey, AuditAction, AuditRecord, Group, Membership, Organization, Role, User
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile
from conversations.models import Attachment, Question, StandingApproval
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from tests.conversations.api.conftest import add_attachment, add_call, make_conversation, make_exchange

# Who knocks. Keys are the owner's, one with each scope: what they may not is for want of the scope.
KEYS = tuple(f"key {scope}" for scope in ApiKey.SCOPES)
PEOPLE = ("guest", "member", "auditor", "admin", "owner")
OUTSIDERS = ("nobody", "deactivated", "ex-member", "stranger", "superuser")
CALLERS = (*OUTSIDERS, *PEOPLE, *KEYS)


@dataclass
class Tenant:
    organization: Organization
    agent: Agent
    server: MCPServer
    entry: UUID
    people: dict[str, User] = field(default_factory=dict)


@dataclass
class World:
    """`users` are the callers with a session, `secrets` those with a key, each by name.

    `others`: what a colleague, and somebody in the other organization (`foreign`), have: none of the callers.
    """

    acme: Tenant
    globex: Tenant
    users: dict[str, User]
    secrets: dict[str, str]
    others: dict[str, dict[str, Any]]
    own: dict[str, dict[str, Any]] = field(default_factory=dict)

    def owner_of(self, caller: str) -> User | None:
        return self.users.get("owner" if caller in KEYS else caller)


def make_tenant(slug: str) -> Tenant:
    """An organization whose agent and server everybody in it has, guests by their group."""
    organization = Organization.objects.create(slug=slug, name=slug.title(), own_servers="members")
    endpoint = ModelEndpoint.objects.create(
        organization=organization, slug="e", base_url="http://127.0.0.1:9/v1", api_key="k", retries=0
    )
    profile = ModelProfile.objects.create(organization=organization, endpoint=endpoint, slug="gpt", name="gpt")
    agent = Agent.objects.create(organization=organization, slug=f"{slug}-agent", name="Helper", model=profile)
    server = MCPServer.objects.create(
        organization=organization,
        slug=f"{slug}-server",
        title="Tickets",
        url="http://127.0.0.1:9/mcp",
        variables={"REGION": {}},
    )
    group = Group.objects.create(organization=organization, slug="all")
    AgentServer.objects.create(agent=agent, server=server)
    for who in ({"whole_organization": True}, {"group": group}):
        ServerGrant.objects.create(server=server, **who)
        AgentGrant.objects.create(agent=agent, **who)
    people = {}
    for role in Role:
        user = User.objects.create_user(f"{slug}-{role}", f"{slug}-{role}@example.org", "correct horse")
        Membership.objects.create(user=user, organization=organization, role=role).groups.add(group)
        people[str(role)] = user
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=organization.pk,
        actor_id=people["member"].pk,
        server=server.slug,
        body={"arguments": {}, "result": "noon"},
    )
    entry = AuditRecord.objects.as_system().filter(organization_id=organization.pk).values_list("pk", flat=True).get()
    return Tenant(organization, agent, server, entry, people)


def make_world() -> World:
    acme, globex = make_tenant("acme"), make_tenant("globex")
    users = dict(acme.people)
    for name in ("deactivated", "ex-member"):
        gone = name == "deactivated"
        users[name] = User.objects.create_user(name, f"{name}@example.org", "correct horse", is_active=not gone)
        Membership.objects.create(user=users[name], organization=acme.organization, role=Role.OWNER, is_active=gone)
    users["superuser"] = User.objects.create_superuser("root", "root@example.org", "correct horse")
    users["stranger"] = globex.people["owner"]
    others = {}
    for name, tenant in (("colleague", acme), ("foreign", globex)):
        user = User.objects.create_user(name, f"{name}@example.org", "correct horse")
        Membership.objects.create(user=user, organization=tenant.organization)
        others[name] = things_of(user, tenant)
    secrets = {
        f"key {scope}": ApiKey.issue(user=users["owner"], organization=acme.organization, scopes=[scope])[1]
        for scope in ApiKey.SCOPES
    }
    return World(acme, globex, users, secrets, others)


def things_of(user: User, tenant: Tenant) -> dict[str, Any]:
    """What `user` has in an organization, by the names that addresses and frames use. Made anew at each call."""
    for rows in (LinkedAccount.objects.as_system(), Attachment.objects.as_system(), MCPServer.objects.as_system()):
        rows.filter(organization=tenant.organization, **{_OWNER[rows.model]: user}).delete()
    conversation = make_conversation(user, tenant.agent, title="A chat")
    _asked, said, turn = make_exchange(conversation, "What time is it?", "Noon.")
    call = add_call(turn, said, server=tenant.server)
    conversation.current_leaf = said
    conversation.save()
    where = {"organization": tenant.organization}
    question = {"turn": turn, "call": call, "asked_of": user, "expires_at": timezone.now() + timedelta(hours=1)}
    account = LinkedAccount.objects.create(
        server=tenant.server,
        user=user,
        binding=tenant.server.oauth_binding(),
        issuer="https://login.example",
        name="An account",
        is_default=True,
        **where,
    )
    return {
        "conversation": conversation.pk,
        "message": said.pk,
        "turn": turn.pk,
        "call_id": call.pk,
        "question": Question.objects.create(kind="approval", **question, **where).pk,
        "elicitation": Question.objects.create(kind="elicitation", **question, **where).pk,
        "standing_id": StandingApproval.objects.create(
            user=user, server=tenant.server, tool="now", scope="always", **where
        ).pk,
        "attachment": add_attachment(user, tenant.organization, conversation=conversation).pk,
        "account": account.pk,
        "own_server": MCPServer.objects.create(
            owner=user, slug="my-server", title="Mine", url="https://127.0.0.1:9/mcp", **where
        ).pk,
        "server": tenant.server.slug,
        "slug": tenant.agent.slug,
        "entry": tenant.entry,
        "organization": tenant.organization.slug,
        "secret": "no-such-secret",
        "provider_id": "no-such-provider",
        "request_id": uuid4(),
    }


_OWNER: dict[Any, str] = {LinkedAccount: "user", Attachment: "owner", MCPServer: "owner"}
