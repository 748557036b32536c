"""Why somebody can or cannot use a tool: each verdict says so, and the page and the call agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Group, Membership, Organization, User
from agents.models import Agent, AgentGrant, AgentServer
from conversations.explaining import Explanation, explain, preview
from conversations.models import StandingApproval
from mcpservers import entries
from mcpservers.discovery import Discovery
from mcpservers.models import MCPServer, ServerGrant, UserVariables
from mcpservers.pins import pin_hash

TOOLS = [
    {"name": "read", "inputSchema": {"type": "object"}},
    {"name": "write", "inputSchema": {"type": "object"}},
]


@pytest.fixture
def server(db: None, organization: Organization) -> MCPServer:
    entries.memory.clear()
    server: MCPServer = MCPServer.objects.create(
        organization=organization,
        slug="notes",
        title="Notes",
        url="https://notes.example.org/mcp",
        rules=[{"tool": "read", "do": "allow"}],
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    found = Discovery(tools=TOOLS, warnings=[], instructions="", complete=True)
    entries.store(entries.Address(server.pk, server.definition_hash()), "notes", found, entries.new_revision())
    return server


@pytest.fixture
def agent(organization: Organization, server: MCPServer, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization, servers=[server])


def answer_of(explanation: Explanation, subject: str) -> tuple[str, str]:
    step = next(step for step in explanation.steps if step.subject.startswith(subject))
    return step.answer, step.reason


def test_a_tool_that_a_rule_allows_runs_at_once(bob: User, server: MCPServer, agent: Agent) -> None:
    explanation = explain(bob, server, "read", agent)
    assert explanation.answer == "yes", explanation
    assert "no" not in {step.answer for step in explanation.steps}


def test_a_tool_without_a_rule_is_asked_about(bob: User, server: MCPServer, agent: Agent) -> None:
    explanation = explain(bob, server, "write", agent)
    assert explanation.answer == "ask"
    assert "No rule allows" in answer_of(explanation, "Decision")[1]


Change = Callable[[User, MCPServer, Agent], Any]


def _deny_group(user: User, server: MCPServer, agent: Agent) -> None:
    group = Group.objects.create(
        organization=agent.organization, slug="interns", rules=[{"tool": "notes__*", "do": "deny"}]
    )
    group.memberships.set(Membership.objects.filter(user=user))


CHANGES: dict[str, tuple[Change, str, str]] = {
    "left": (lambda user, *_: Membership.objects.filter(user=user).delete(), "Membership", "Not a member"),
    "inactive": (lambda user, *_: Membership.objects.filter(user=user).update(is_active=False), "Membership", "active"),
    "deactivated": (
        lambda user, *_: (User.objects.filter(pk=user.pk).update(is_active=False), user.refresh_from_db()),
        "Membership",
        "deactivated",
    ),
    "role": (lambda user, *_: Membership.objects.filter(user=user).update(role="auditor"), "Role", "Auditor"),
    "agent off": (lambda _, __, agent: _save(agent, enabled=False), "Agent", "switched off"),
    "agent grant": (lambda *_: AgentGrant.objects.all().delete(), "Grant of the agent", "not granted"),
    "agent without": (lambda *_: AgentServer.objects.all().delete(), "Tools of the agent", "does not use"),
    "agent tools": (lambda *_: AgentServer.objects.update(tools=["other_*"]), "Tools of the agent", "other_*"),
    "server off": (lambda _, server, __: _save(server, enabled=False), "Server", "switched off"),
    "grant": (lambda *_: ServerGrant.objects.all().delete(), "Grant of the server", "not granted"),
    "tool denied": (
        lambda user, server, _: ServerGrant.objects.create(server=server, user=user, tool="re*", deny=True),
        "Grant of the server",
        "denied to you",
    ),
    "group rule": (_deny_group, "Decision of the rules", "interns"),
    "agent rule": (lambda _, __, agent: _save(agent, rules=[{"tool": "*", "do": "deny"}]), "Decision", "the agent"),
    "nobody approves": (
        lambda _, server, __: _save(server, rules=[{"tool": "*", "do": "ask", "approvers": ["group:gone"]}]),
        "Decision of the rules",
        "group:gone",
    ),
    "variables": (
        lambda _, server, __: _save(server, variables={"TOKEN": {}}, headers={"X": "{{TOKEN}}"}),
        "Set-up",
        "TOKEN",
    ),
}


def _save(row: Any, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()


@pytest.mark.parametrize("change", CHANGES)
def test_each_refusal_is_told_by_the_step_whose_it_is(bob: User, server: MCPServer, agent: Agent, change: str) -> None:
    act, subject, words = CHANGES[change]
    act(bob, server, agent)
    explanation = explain(bob, server, "read", agent)
    assert explanation.answer == "no", explanation
    answer, reason = answer_of(explanation, subject)
    assert answer == "no"
    assert words in reason
    refused = next(step for step in explanation.steps if step.answer == "no")
    assert refused.reason in explanation.summary


@pytest.mark.parametrize(
    "oauth", [{"client_id": "c", "obo": {}}, {"client_id": "c", "client_secret": "s", "grant": "client_credentials"}]
)
def test_where_nobody_links_an_account_none_is_said_to_be_missing(
    bob: User, server: MCPServer, agent: Agent, oauth: dict[str, Any]
) -> None:
    server.oauth = oauth
    server.save()
    assert "Sign-in" not in {step.subject for step in explain(bob, server, "read", agent).steps}
    server.oauth = {}
    server.save()
    assert answer_of(explain(bob, server, "read", agent), "Sign-in")[0] == "note"


def test_a_tool_that_is_not_listed_or_waits_for_an_admin_is_told(bob: User, server: MCPServer, agent: Agent) -> None:
    assert answer_of(explain(bob, server, "erase", agent), "Definition")[0] == "no"
    server.trust = MCPServer.Trust.REVIEWED
    server.save()
    from mcpservers.models import ToolSighting, ToolVersion, ToolView

    explain(bob, server, "read", agent)  # seen for the first time
    ToolVersion.objects.update(decision="rejected")
    ToolSighting.objects.update(accepted=False)
    for view in ToolView.objects.all():
        _save(view, revision=view.revision + 1)
    answer, reason = answer_of(explain(bob, server, "read", agent), "Definition")
    assert answer == "no"
    assert "rejected" in reason


def test_a_standing_approval_counts_for_its_person_and_its_definition(
    bob: User, alice: User, server: MCPServer, agent: Agent
) -> None:
    fields = {"organization": server.organization, "user": bob, "server": server, "tool": "write"}
    given = StandingApproval.objects.create(**fields, scope="always", definition=pin_hash(TOOLS[1]))
    assert explain(bob, server, "write", agent).answer == "yes"
    assert explain(alice, server, "write", agent).answer == "ask"
    _save(given, definition="of-another")
    explanation = explain(bob, server, "write", agent)
    assert explanation.answer == "ask"
    assert "another definition" in answer_of(explanation, "Always allowed")[1]
    _save(given, definition=pin_hash(TOOLS[1]), revoked_at=timezone.now())
    assert explain(bob, server, "write", agent).answer == "ask"


def test_a_preview_names_what_is_offered_and_what_is_not(bob: User, server: MCPServer, agent: Agent) -> None:
    _save(agent, rules=[{"tool": "notes__write", "do": "deny"}])
    found = preview(bob, agent)
    (known,) = found.servers
    assert [(tool.name, bool(tool.withheld)) for tool in known.tools or ()] == [("read", False), ("write", True)]
    AgentGrant.objects.all().delete()
    assert preview(bob, agent).refusal == "It is not granted to you."


def test_a_preview_names_the_persons_own_servers_where_they_are_offered_and_shows_nothing_else_of_them(
    alice: User, bob: User, server: MCPServer, agent: Agent
) -> None:
    made = {"organization": server.organization, "url": "https://private.example/mcp", "headers": {"X-Key": "canary"}}
    for owner, title in ((bob, "Zettel\u202e"), (bob, "Archive"), (alice, "Of Alice")):
        slug = f"my-{owner.username}-{title[0].lower()}"
        MCPServer.objects.create(owner=owner, slug=slug, title=title, **made)
    off = {"title": "Off", "slug": "my-off", "owner": bob, "enabled": False}
    MCPServer.objects.create(**off, **made)
    assert preview(bob, agent).own == ()
    _save(agent, user_servers=True)
    assert preview(bob, agent).own == (), "the organization does not let its members have any"
    _save(server.organization, own_servers="members")
    assert preview(bob, agent).own == ("Archive", "Zettel⟨U+202E⟩")
    shown = page(alice, "preview", user=bob.pk, agent=agent.pk).content.decode()
    assert "<li>Archive</li>" in shown
    assert not any(hidden in shown for hidden in ("private.example", "canary", "my-bob", "Of Alice"))
    assert not any(str(each.pk) in shown for each in MCPServer.objects.as_system().filter(owner__isnull=False))


# --- In the admin -------------------------------------------------------------------------------------------------


def page(who: User, name: str, **query: Any) -> Any:
    client = Client()
    client.force_login(who, backend="django.contrib.auth.backends.ModelBackend")
    return client.get(reverse(f"admin:{name}"), {key: str(value) for key, value in query.items()})


def test_an_admin_asks_about_a_member(alice: User, bob: User, server: MCPServer, agent: Agent) -> None:
    response = page(alice, "why", user=bob.pk, server=server.pk, tool="write", agent=agent.pk)
    assert response.status_code == 200
    assert response.context["explanation"].answer == "ask"
    assert "No rule allows this tool" in response.content.decode()
    response = page(alice, "preview", user=bob.pk, agent=agent.pk)
    assert "runs at once" in response.content.decode()
    assert page(alice, "why").context["explanation"] is None


def test_nobody_asks_about_another_organization(
    alice: User, bob: User, charlie: User, other_organization: Organization, server: MCPServer, agent: Agent
) -> None:
    assert page(bob, "why").status_code in (302, 403)
    for name in ("why", "preview"):
        response = page(charlie, name, user=bob.pk, server=server.pk, tool="write", agent=agent.pk)
        assert response.context.get("explanation") is None
        assert response.context.get("preview") is None
        assert "Notes" not in response.content.decode()
        guessed = page(
            charlie,
            name,
            organization=server.organization_id,
            user=bob.pk,
            server=server.pk,
            tool="write",
            agent=agent.pk,
        )
        assert "Notes" not in guessed.content.decode()
        assert page(charlie, name, organization="nonsense", user="x").status_code == 200


def test_values_of_variables_are_not_told(alice: User, bob: User, server: MCPServer, agent: Agent) -> None:
    _save(server, variables={"TOKEN": {}}, headers={"X": "{{TOKEN}}"})
    values: Any = {"TOKEN": "canary"}
    UserVariables.objects.create(server=server, user=bob, values=values)
    for name in ("why", "preview"):
        response = page(alice, name, user=bob.pk, server=server.pk, tool="write", agent=agent.pk)
        assert response.status_code == 200
        assert "canary" not in response.content.decode()


HIDDEN = "re\u200bad\u202e"


def test_what_an_eye_cannot_see_in_a_servers_text_is_written_out(
    alice: User, bob: User, server: MCPServer, agent: Agent
) -> None:
    tools = [{"name": HIDDEN, "title": f"Read {HIDDEN}", "inputSchema": {"type": "object"}}]
    found = Discovery(tools=tools, warnings=[], instructions="", complete=True)
    entries.store(entries.Address(server.pk, server.definition_hash()), "notes", found, entries.new_revision())
    preview_page = page(alice, "preview", user=bob.pk, agent=agent.pk).content.decode()
    assert "re⟨U+200B⟩ad⟨U+202E⟩" in preview_page
    assert not {"\u200b", "\u202e"} & set(preview_page)
    _save(server, rules=[{"tool": HIDDEN, "do": "ask", "approvers": ["group:gone"]}])
    why_page = page(alice, "why", user=bob.pk, server=server.pk, tool=HIDDEN, agent=agent.pk)
    assert "⟨U+200B⟩" in why_page.context["explanation"].summary
    told = why_page.content.decode().partition('role="status"')[2]
    assert "re⟨U+200B⟩ad⟨U+202E⟩" in told
    assert not {"\u200b", "\u202e"} & set(told)


def test_on_behalf_of_who_has_not_signed_in_nothing_is_called(bob: User, server: MCPServer, agent: Agent) -> None:
    _save(server, oauth={"client_id": "c", "obo": {}})
    assert "nobody answers" in answer_of(explain(bob, server, "read", agent), "On behalf")[1]
    _save(server, obo_author="operator")
    explanation = explain(bob, server, "read", agent)
    assert explanation.answer == "no"
    assert "called on your behalf" in explanation.summary
