"""Why somebody can, or cannot, use a tool: the verdicts in the order in which they are asked for, by what decides them.

Nothing is decided here. The answer is what the offer, the verdict at a call and the look at its rows say together; the
steps tell which of the rows it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from accounts import policy
from accounts.actors import Actor, find_actor
from accounts.models import Membership, User
from agents.deciding import CallVerdict, ThroughAgent, decide_call
from agents.models import Agent, AgentServer
from conversations.models import StandingApproval
from conversations.standing import always_of
from conversations.usable import own_servers
from mcpservers import catalogue
from mcpservers.approvals import Do, matches, rule_lists, vote_of
from mcpservers.authorizing import DIRECTLY, authorize_call
from mcpservers.catalogue import OfferedTool, WantedServer
from mcpservers.entries import Definition
from mcpservers.errors import NotReadyError
from mcpservers.giving import given_tool, is_visible
from mcpservers.models import MCPServer
from mcpservers.oauth import accounts, exchange, signins
from mcpservers.oauth.whose import Whose, whose_account
from mcpservers.offers import KnownServer
from mcpservers.pins import OWN_REASONS, REASONS, State
from mcpservers.transports import late_names
from mcpservers.visible import revealed

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


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for which tool, with which agent, and what the offer says of it."""

    actor: Actor
    server: MCPServer
    tool: str
    agent: Agent | None
    row: AgentServer | None  # the server among the agent's
    known: KnownServer

    @property
    def globs(self) -> tuple[str, ...]:
        return tuple(self.row.tools) if self.row is not None else ()

    @property
    def offered(self) -> OfferedTool | None:
        """The tool as it is known, offered or withheld."""
        return next((each for each in self.known.tools or () if each.name == self.tool), None)


def explain(user: User, server: MCPServer, tool: str, agent: Agent | None = None) -> Explanation:
    """Why `user` can or cannot use `tool` of `server`, with `agent` or whatever agent. From fresh rows.

    Text of servers in it is `revealed`.
    """
    steps = tuple(replace(step, reason=revealed(step.reason)) for step in _steps(user, server, tool, agent))
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
    if not is_visible(actor, server):
        yield Step("Server", "no", "It is a server of another person, for that person alone.")
        return
    asked = _asked_for(actor, server, tool, agent)
    refused = False
    for step in _of_rows(asked):
        refused = refused or step.answer == "no"
        yield step
    yield from _of_rules(asked)
    yield from _decided(asked, refused)


def _asked_for(actor: Actor, server: MCPServer, tool: str, agent: Agent | None) -> _Asked:
    row = AgentServer.objects.filter(agent=agent, server=server).first() if agent is not None else None
    rules = agent.rules if agent is not None else ()
    (known,) = catalogue.known(actor, [WantedServer(server.pk)], agent_rules=rules)
    return _Asked(actor, server, tool, agent, row, known)


def _of_rows(asked: _Asked) -> Iterator[Step]:
    """What the rows say before any rule does."""
    actor, server = asked.actor, asked.server
    yield _step("Role", policy.allows(actor, policy.Action.CALL_TOOL))
    if asked.agent is not None:
        yield from _of_agent(asked, asked.agent)
    yield Step("Server", "yes", "It is switched on.") if server.enabled else Step("Server", "no", "It is switched off.")
    yield _step("Grant of the server", given_tool(actor, server, server.grants.all(), asked.tool))
    yield from _of_catalogue(asked)
    yield from _of_identity(actor, server, asked.known)


def _no_member(user: User, organization_id: UUID) -> str:
    membership = Membership.objects.filter(user=user, organization=organization_id).first()
    if membership is None:
        return "Not a member of the organization."
    if not user.is_active:
        return "The user is deactivated."
    return "The membership is not active." if not membership.is_active else "The organization is not active."


def _step(subject: str, verdict: policy.Verdict) -> Step:
    return Step(subject, "yes" if verdict else "no", verdict.reason)


def _of_agent(asked: _Asked, agent: Agent) -> Iterator[Step]:
    if not agent.enabled:
        yield Step("Agent", "no", f"“{agent.name}” is switched off.")
    yield _step("Grant of the agent", policy.granted(asked.actor, agent.grants.all()))
    own = asked.server.owner_id is not None
    if own and not agent.user_servers:
        yield Step("Tools of the agent", "no", f"“{agent.name}” does not use people's own servers.")
    elif asked.row is None and not own:
        yield Step("Tools of the agent", "no", f"“{agent.name}” does not use this server.")
    elif asked.globs and not any(matches(glob, asked.tool) for glob in asked.globs):
        yield Step("Tools of the agent", "no", f"“{agent.name}” takes only {', '.join(asked.globs)} of this server.")
    else:
        yield Step("Tools of the agent", "yes", f"“{agent.name}” uses it.")


def _of_catalogue(asked: _Asked) -> Iterator[Step]:
    known, offered = asked.known, asked.offered
    if known.tools is None:
        words = "Its tools are listed anew in every turn." if known.of_each_turn else "Its tools have not been listed."
        yield Step("Definition of the tool", "note", words)
    elif offered is None:
        yield Step("Definition of the tool", "no", "The server does not list a tool of this name.")
    elif offered.definition.quarantined:
        yield Step("Definition of the tool", "no", offered.definition.quarantined)
    elif offered.state is not State.ACCEPTED:
        reasons = REASONS if asked.server.owner_id is None else OWN_REASONS
        yield Step("Definition of the tool", "no", reasons[offered.state])
    else:
        yield Step("Definition of the tool", "yes", "It is accepted as it is.")


def _of_identity(actor: Actor, server: MCPServer, known: KnownServer) -> Iterator[Step]:
    """What the person has to do first. A missing account is asked for in the chat: it refuses nothing."""
    if known.problem is not None and known.problem.code == "not_ready":
        yield Step("Set-up", "no", known.problem.message)
    elif server.variables:
        yield Step("Set-up", "yes", "The values that it asks its users for are entered.")
    whose = whose_account(server)
    if whose is Whose.ON_BEHALF or late_names(server):
        yield _on_behalf(actor, server, whose)
    if whose is not Whose.OWN:
        return
    account = accounts.choose(actor, server)
    if account is None:
        yield Step("Sign-in", "note", "There is no account yet; the chat asks to sign in at the first call.")
    elif not accounts.is_usable(account):
        yield Step("Sign-in", "note", "The account has to be linked again; the chat asks to sign in.")
    else:
        yield Step("Sign-in", "yes", f"The account “{account.name}” is used.")


def _on_behalf(actor: Actor, server: MCPServer, whose: Whose) -> Step:
    """The chat cannot ask for a sign-in to this site: without one every call fails."""
    if whose is Whose.ON_BEHALF and not exchange.answers_for(server.pk):
        return Step("On behalf", "no", "It is called on behalf of people, for which nobody answers who may.")
    try:
        sign_in = signins.stored(actor.user_id)
    except NotReadyError as error:
        return Step("On behalf", "no", error.public_message)
    if not sign_in.lives() and "refresh_token" not in sign_in.tokens:
        return Step("On behalf", "no", "The person's sign-in to this site has expired: they sign out and in again.")
    return Step("On behalf", "yes", "It is called on behalf of the person, with the sign-in to this site.")


def _of_rules(asked: _Asked) -> Iterator[Step]:
    """What each list says by itself."""
    actor, server = asked.actor, asked.server
    rules = asked.agent.rules if asked.agent is not None else ()
    for rule_list in rule_lists(server.slug, asked.tool, server=server.rules, groups=actor.group_rules, agent=rules):
        vote = vote_of(asked.tool, rule_list)
        if vote is not None:
            yield Step(f"Rules of {rule_list.origin}", "note", vote.reason)


def _decided(asked: _Asked, refused: bool) -> Iterator[Step]:
    """What the call itself would be told; of one that the rows refuse already, what the rules alone say."""
    actor, server = asked.actor, asked.server
    rules = asked.agent.rules if asked.agent is not None else ()
    alone = catalogue.decide(server, asked.tool, rules, actor.group_rules)
    if refused:
        said: dict[Do, Answer] = {Do.ALLOW: "yes", Do.ASK: "ask", Do.DENY: "no"}
        yield Step("Decision of the rules", said[alone.do], alone.reason)
        return
    agent_id = asked.agent.pk if asked.agent is not None else None
    tool = asked.offered or _unlisted(asked)
    decided = decide_call(actor, agent_id, tool, always=always_of(actor.user_id, None, agent_id))
    if decided.do is Do.DENY:
        yield Step("Decision of the rules", "no", _both(alone.reason, decided.reason))
        return
    if decided.do is Do.ALLOW and alone.do is Do.ASK:
        yield Step("Decision of the rules", "note", alone.reason)
        yield Step("Always allowed", "yes", "The person always allows it, and is not asked.")
    elif decided.do is Do.ALLOW:
        yield Step("Decision of the rules", "yes", decided.reason)
    else:
        yield Step("Decision of the rules", "ask", alone.reason + _of_whom(decided))
        yield from (Step("Always allowed", "note", words) for words in _allowed_elsewhere(asked, decided))
    withheld = asked.offered.withheld if asked.offered is not None else ""
    through = DIRECTLY if agent_id is None else ThroughAgent(agent_id)
    authorization = authorize_call(actor, server.pk, asked.tool, allow_globs=asked.globs, through=through)
    if withheld or not authorization.allowed:
        yield Step("The call", "no", withheld or authorization.reason)


def _both(rule: str, reason: str) -> str:
    return reason if rule == reason else f"{rule} {reason[:1].upper()}{reason[1:]}"


def _of_whom(decided: CallVerdict) -> str:
    if decided.approvers is None:
        return ""
    return f" It is asked of {', '.join(sorted(decided.approvers.values()))}."


def _unlisted(asked: _Asked) -> OfferedTool:
    """A tool of a server whose list is not known: nothing was ever allowed for good of its definition."""
    definition = Definition(asked.tool, asked.tool, "", "", {}, {}, None, {})
    return OfferedTool(asked.server.pk, asked.server.slug, asked.server.title, definition, Do.ASK, "")


def _allowed_elsewhere(asked: _Asked, decided: CallVerdict) -> Sequence[str]:
    """What the person has allowed for good of this tool, and why it does not count here."""
    if not decided.can_remember:
        return ()
    pin = asked.offered.definition.pin if asked.offered is not None else ""
    rows = StandingApproval.objects.visible_to(asked.actor).filter(
        server=asked.server, tool=asked.tool, revoked_at=None
    )
    told = {
        StandingApproval.Scope.CONVERSATION: "The person always allows it in one chat.",
        StandingApproval.Scope.AGENT: "The person always allows it with one agent.",
    }
    changed = "It was always allowed, for another definition of the tool."
    found = (told.get(StandingApproval.Scope(row.scope), "") if row.definition == pin else changed for row in rows)
    return list(dict.fromkeys(words for words in found if words))


# --- What somebody would be offered -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviewedTool:
    """`name` is the server's own, as it is; `shown_name` what is shown of it."""

    name: str
    shown_name: str
    title: str
    withheld: str
    decision: Do
    reason: str


@dataclass(frozen=True, slots=True)
class PreviewedServer:
    """`tools` is None where its list is not known."""

    server_id: UUID
    title: str
    problem: str
    tools: tuple[PreviewedTool, ...] | None
    of_each_turn: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What an agent would offer somebody now: `refusal` says why not at all, else its servers with their tools.

    Text of servers in it is `revealed`, but for the tools' names. `own` are the titles of the person's own servers that
    are offered besides: what else there is of them is the person's alone.
    """

    refusal: str
    servers: tuple[PreviewedServer, ...] = ()
    own: tuple[str, ...] = ()


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
    known = catalogue.known(actor, wanted, agent_rules=agent.rules)
    own = sorted(revealed(server.title) for server in own_servers(actor)) if agent.user_servers else ()
    return Preview("", tuple(_previewed(server) for server in known), tuple(own))


def _previewed(server: KnownServer) -> PreviewedServer:
    tools = None if server.tools is None else tuple(_previewed_tool(tool) for tool in server.tools)
    problem = revealed(server.problem.message) if server.problem is not None else ""
    return PreviewedServer(server.server_id, revealed(server.title), problem, tools, server.of_each_turn)


def _previewed_tool(tool: OfferedTool) -> PreviewedTool:
    words = [revealed(text) for text in (tool.name, tool.title, tool.withheld, tool.reason)]
    shown, title, withheld, reason = words
    return PreviewedTool(tool.name, shown, title, withheld, tool.decision, reason)
