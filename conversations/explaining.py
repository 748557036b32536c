"""Why somebody can, or cannot, use a tool: the verdicts in the order in which they are asked for, by what decides them.

Nothing is decided here. Each step calls what offers and calls go through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from accounts import approvers, policy
from accounts.actors import Actor, find_actor
from accounts.models import Membership, User
from agents.models import Agent, AgentServer
from conversations.models import StandingApproval
from mcpservers import catalogue
from mcpservers.approvals import Do, RuleVerdict, matches, rule_lists, vote_of
from mcpservers.catalogue import WantedServer
from mcpservers.giving import given
from mcpservers.models import MCPServer
from mcpservers.oauth import accounts
from mcpservers.oauth.whose import Whose, whose_account
from mcpservers.offers import KnownServer
from mcpservers.pins import REASONS, State

Answer = Literal["yes", "no", "ask", "note"]


@dataclass(frozen=True, slots=True)
class Step:
    """One verdict: whose it is, what it says, and why. A `note` decides nothing by itself."""

    subject: str
    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`answer`: `yes` (it runs at once), `ask` (a person is asked), `no`; `summary` in one sentence."""

    answer: Answer
    summary: str
    steps: tuple[Step, ...]


def explain(user: User, server: MCPServer, tool: str, agent: Agent | None = None) -> Explanation:
    """Why `user` can or cannot use `tool` of `server`, with `agent` or whatever agent. From fresh rows."""
    steps = tuple(_steps(user, server, tool, agent))
    refused = next((step for step in steps if step.answer == "no"), None)
    if refused is not None:
        return Explanation("no", f"It cannot be used. {refused.reason}", steps)
    if any(step.answer == "ask" for step in steps):
        return Explanation("ask", "It can be used, and a person is asked before each call.", steps)
    return Explanation("yes", "It can be used, and runs without asking.", steps)


def _steps(user: User, server: MCPServer, tool: str, agent: Agent | None) -> Iterator[Step]:
    actor = find_actor(user.pk, server.organization_id)
    if actor is None:
        yield Step("Membership", "no", _no_member(user, server.organization_id))
        return
    yield Step("Membership", "yes", "An active member of the organization.")
    yield _step("Role", policy.allows(actor, policy.Action.CALL_TOOL))
    row = None
    if agent is not None:
        row = AgentServer.objects.filter(agent=agent, server=server).first()
        yield from _of_agent(actor, agent, server, row, tool)
    yield Step("Server", "yes", "It is switched on.") if server.enabled else Step("Server", "no", "It is switched off.")
    grants = [grant for grant in server.grants.all() if not grant.tool or matches(grant.tool, tool)]
    yield _step("Grant of the server" if server.owner_id is None else "Owner", given(actor, server, grants))
    rules = agent.rules if agent is not None else ()
    (known,) = catalogue.known(actor, [WantedServer(server.pk)], agent_rules=rules)
    yield from _of_catalogue(known, tool)
    yield from _of_identity(actor, server, known)
    yield from _of_rules(actor, server, tool, agent, known)


def _no_member(user: User, organization_id: UUID) -> str:
    membership = Membership.objects.filter(user=user, organization=organization_id).first()
    if membership is None:
        return "Not a member of the organization."
    if not user.is_active:
        return "The user is deactivated."
    return "The membership is not active." if not membership.is_active else "The organization is not active."


def _step(subject: str, verdict: policy.Verdict) -> Step:
    return Step(subject, "yes" if verdict else "no", verdict.reason)


def _of_agent(actor: Actor, agent: Agent, server: MCPServer, row: AgentServer | None, tool: str) -> Iterator[Step]:
    if not agent.enabled:
        yield Step("Agent", "no", f"“{agent.name}” is switched off.")
    yield _step("Grant of the agent", policy.granted(actor, agent.grants.all()))
    if server.owner_id is not None:
        answer: Answer = "yes" if agent.user_servers else "no"
        words = "uses" if agent.user_servers else "does not use"
        yield Step("Tools of the agent", answer, f"“{agent.name}” {words} people's own servers.")
    elif row is None:
        yield Step("Tools of the agent", "no", f"“{agent.name}” does not use this server.")
    elif row.tools and not any(matches(glob, tool) for glob in row.tools):
        yield Step("Tools of the agent", "no", f"“{agent.name}” takes only {', '.join(row.tools)} of this server.")
    else:
        yield Step("Tools of the agent", "yes", f"“{agent.name}” uses it.")


def _of_catalogue(known: KnownServer, tool: str) -> Iterator[Step]:
    if known.tools is None:
        words = "Its tools are listed anew in every turn." if known.of_each_turn else "Its tools have not been listed."
        yield Step("Definition of the tool", "note", words)
        return
    offered = next((each for each in known.tools if each.name == tool), None)
    if offered is None:
        yield Step("Definition of the tool", "no", "The server does not list a tool of this name.")
    elif offered.definition.quarantined:
        yield Step("Definition of the tool", "no", offered.definition.quarantined)
    elif offered.state is not State.ACCEPTED:
        yield Step("Definition of the tool", "no", offered.withheld or REASONS[offered.state])
    else:
        yield Step("Definition of the tool", "yes", "It is accepted as it is.")


def _of_identity(actor: Actor, server: MCPServer, known: KnownServer) -> Iterator[Step]:
    """What the person has to do first. A missing account is asked for in the chat: it refuses nothing."""
    if known.problem is not None and known.problem.code == "not_ready":
        yield Step("Set-up", "no", known.problem.message)
    elif server.variables:
        yield Step("Set-up", "yes", "The values that it asks its users for are entered.")
    if whose_account(server) is not Whose.OWN:
        return
    account = accounts.choose(actor, server)
    if account is None:
        yield Step("Sign-in", "note", "There is no account yet; the chat asks to sign in at the first call.")
    elif not accounts.is_usable(account):
        yield Step("Sign-in", "note", "The account has to be linked again; the chat asks to sign in.")
    else:
        yield Step("Sign-in", "yes", f"The account “{account.name}” is used.")


def _of_rules(actor: Actor, server: MCPServer, tool: str, agent: Agent | None, known: KnownServer) -> Iterator[Step]:
    rules = agent.rules if agent is not None else ()
    for rule_list in rule_lists(server.slug, tool, server=server.rules, groups=actor.group_rules, agent=rules):
        vote = vote_of(tool, rule_list)
        if vote is not None:
            yield Step(f"Rules of {rule_list.origin}", "note", vote.reason)
    decided = catalogue.decide(server, tool, rules, actor.group_rules)
    if decided.do is not Do.ASK:
        yield Step("Decision of the rules", "yes" if decided.do is Do.ALLOW else "no", decided.reason)
        return
    yield from _asked(actor, server, tool, decided, agent, known)


def _asked(
    actor: Actor, server: MCPServer, tool: str, decided: RuleVerdict, agent: Agent | None, known: KnownServer
) -> Iterator[Step]:
    named = approvers.resolve(server.organization_id, decided.approvers) if decided.approvers else None
    if named is not None and not named.people:
        yield Step("Decision of the rules", "no", f"{decided.reason} Nobody can approve: {named.problem}.")
        return
    who = "" if named is None else f" It is asked of {', '.join(sorted(named.people.values()))}."
    always = _standing(actor, server, tool, agent, known) if decided.remember else []
    may = named is None or actor.user_id in named.people
    if may and any(counts for counts, _ in always):
        yield Step("Decision of the rules", "note", decided.reason + who)
        yield from (Step("Always allowed", "yes" if counts else "note", words) for counts, words in always)
        return
    yield Step("Decision of the rules", "ask", decided.reason + who)
    yield from (Step("Always allowed", "note", words) for _, words in always)


def _standing(
    actor: Actor, server: MCPServer, tool: str, agent: Agent | None, known: KnownServer
) -> list[tuple[bool, str]]:
    """What the person has allowed for good of this tool: whether it counts everywhere here, and how far it goes."""
    pins = {each.definition.pin for each in known.tools or () if each.name == tool}
    rows = StandingApproval.objects.visible_to(actor).filter(server=server, tool=tool, revoked_at=None)
    found = []
    for row in rows:
        if row.definition not in pins:
            found.append((False, "It was always allowed, for another definition of the tool."))
        elif row.scope == StandingApproval.Scope.ALWAYS:
            found.append((True, "The person always allows it."))
        elif row.scope == StandingApproval.Scope.AGENT and agent is not None and row.agent_id == agent.pk:
            found.append((True, "The person always allows it with this agent."))
        elif row.scope == StandingApproval.Scope.CONVERSATION:
            found.append((False, "The person always allows it in one chat."))
    return list(dict.fromkeys(found))


# --- What somebody would be offered -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preview:
    """What an agent would offer somebody now: `refusal` says why not at all, else its servers with their tools."""

    refusal: str
    servers: tuple[KnownServer, ...] = ()


def preview(user: User, agent: Agent) -> Preview:
    """The agent as `user` would find it. No server is connected to, and nothing of any chat is read."""
    actor = find_actor(user.pk, agent.organization_id)
    if actor is None:
        return Preview(_no_member(user, agent.organization_id))
    for verdict in (policy.allows(actor, policy.Action.USE_AGENT), policy.granted(actor, agent.grants.all())):
        if not verdict:
            return Preview(verdict.reason)
    if not agent.enabled:
        return Preview("The agent is switched off.")
    rows = AgentServer.objects.filter(agent=agent)
    wanted = [WantedServer(row.server_id, tuple(row.tools)) for row in rows]
    return Preview("", tuple(catalogue.known(actor, wanted, agent_rules=agent.rules)))
