"""Rules decide, an admin's read-only list comes second, a person is asked otherwise; a server's hints never decide."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.actors import GroupRules
from mcpservers.approvals import Do, RuleList, claims, rule_lists, verdict


def rules(*pairs: tuple[str, str], origin: str = "the server", subject: str = "") -> RuleList:
    return RuleList(origin, [{"tool": glob, "do": do} for glob, do in pairs], subject)


def test_without_any_rule_a_person_is_asked() -> None:
    decided = verdict("delete", lists=[])
    assert decided.do is Do.ASK
    assert "No rule" in decided.reason


def test_the_first_match_of_a_list_decides() -> None:
    server = rules(("delete_*", "deny"), ("*", "allow"))
    assert verdict("delete_all", lists=[server]).do is Do.DENY
    assert verdict("get", lists=[server]).do is Do.ALLOW
    assert verdict("delete_all", lists=[rules(("*", "allow"), ("delete_*", "deny"))]).do is Do.ALLOW


@pytest.mark.parametrize(
    ("server", "agent", "expected"),
    [
        ("allow", "ask", "ask"),
        ("ask", "allow", "ask"),
        ("allow", "deny", "deny"),
        ("deny", "allow", "deny"),
        ("allow", "allow", "allow"),
        ("ask", "deny", "deny"),
    ],
)
def test_across_lists_the_strictest_decides(server: str, agent: str, expected: str) -> None:
    decided = verdict("t", lists=[rules(("*", server)), rules(("*", agent), origin="the agent")])
    assert decided.do == expected


def test_a_list_without_a_match_has_no_say() -> None:
    assert verdict("t", lists=[rules(("other", "deny")), rules(("t", "allow"), origin="the agent")]).do is Do.ALLOW


def test_the_reason_names_the_rule_and_whose_it_is() -> None:
    decided = verdict("delete_x", lists=[rules(("*", "allow")), rules(("delete_*", "ask"), origin="the agent")])
    assert "delete_*" in decided.reason
    assert "the agent" in decided.reason


def test_read_only_is_asked_only_where_no_rule_matches() -> None:
    assert verdict("get_a", lists=[], read_only=["get_*"]).do is Do.ALLOW
    assert verdict("get_a", lists=[rules(("*", "ask"))], read_only=["get_*"]).do is Do.ASK
    assert verdict("put_a", lists=[], read_only=["get_*"]).do is Do.ASK


def test_an_agents_rules_look_at_the_whole_name() -> None:
    agent = rules(("tickets__*", "allow"), origin="the agent", subject="tickets__get")
    assert verdict("get", lists=[agent]).do is Do.ALLOW
    assert verdict("get", lists=[rules(("tickets__*", "allow"), subject="notes__get")]).do is Do.ASK


def test_case_and_hidden_characters_count() -> None:
    assert verdict("Delete", lists=[rules(("delete", "allow"))]).do is Do.ASK
    assert verdict("get\u200b", lists=[], read_only=["get"]).do is Do.ASK


@pytest.mark.parametrize(
    "rule", [{"tool": "*", "do": "maybe"}, {"tool": "*"}, {"do": "allow"}, {"tool": 7, "do": "allow"}, "x"]
)
def test_a_rule_that_cannot_be_understood_denies(rule: Any) -> None:
    decided = verdict("t", lists=[RuleList("the server", [rule, {"tool": "*", "do": "allow"}])])
    assert decided.do is Do.DENY
    assert "understood" in decided.reason


def test_a_rule_may_forbid_to_remember() -> None:
    ask = RuleList("the server", [{"tool": "*", "do": "ask", "remember": False}])
    assert not verdict("t", lists=[ask]).remember
    assert verdict("t", lists=[rules(("*", "ask"))]).remember


def test_hints_are_claims() -> None:
    hints = {"readOnlyHint": True, "destructiveHint": False, "title": "T", "openWorldHint": "yes"}
    assert claims(hints) == {"readOnlyHint": True, "destructiveHint": False}
    assert claims(None) == {}
    assert claims(["readOnlyHint"]) == {}


# --- What a rule that asks may add --------------------------------------------------------------------------------


def asking(origin: str = "the server", **rule: Any) -> RuleList:
    return RuleList(origin, [{"tool": "*", "do": "ask", **rule}])


def test_arguments_may_be_changed_only_where_every_list_that_asks_lets_one() -> None:
    assert verdict("t", lists=[asking(edit=True)]).edit
    assert not verdict("t", lists=[asking()]).edit
    assert not verdict("t", lists=[asking(edit=True), asking("the agent")]).edit
    assert not verdict("t", lists=[]).edit


def test_each_list_that_names_approvers_has_a_say() -> None:
    decided = verdict(
        "t", lists=[asking(approvers=["bob"]), asking("the agent"), asking("a group", approvers=["carol"])]
    )
    assert decided.approvers == (("bob",), ("carol",))
    allowed = RuleList("the agent", [{"tool": "*", "do": "allow"}])
    assert verdict("t", lists=[asking(approvers=["bob"]), allowed]).approvers == (("bob",),)


@pytest.mark.parametrize("approvers", ["bob", [7], {"bob": 1}])
def test_approvers_that_cannot_be_understood_deny(approvers: Any) -> None:
    assert verdict("t", lists=[asking(approvers=approvers)]).do is Do.DENY


def test_rules_of_one_pattern_that_contradict_each_other_deny() -> None:
    decided = verdict("t", lists=[rules(("t", "allow"), ("*", "ask"), ("t", "ask"))])
    assert decided.do is Do.DENY
    assert "contradict" in decided.reason
    assert verdict("t", lists=[rules(("t", "allow"), ("*", "ask"), ("t", "allow"))]).do is Do.ALLOW


def test_the_rules_of_groups_are_matched_like_an_agents() -> None:
    groups = [GroupRules("interns", [{"tool": "notes__*", "do": "deny"}])]
    lists = rule_lists("notes", "write", server=[{"tool": "*", "do": "allow"}], groups=groups)
    decided = verdict("write", lists=lists)
    assert decided.do is Do.DENY
    assert "interns" in decided.reason
    other = rule_lists("other", "write", server=[{"tool": "*", "do": "allow"}], groups=groups)
    assert verdict("write", lists=other).do is Do.ALLOW
