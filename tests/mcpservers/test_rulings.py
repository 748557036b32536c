"""Rules that were read once say of every tool what they say when they are read for it alone."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounts.actors import GroupRules
from mcpservers.approvals import rule_lists, verdict
from mcpservers.rulings import Rulings

names = st.text("ab_.[]!*?-\n", max_size=6)
globs = st.builds(lambda head, rest: head + rest, st.sampled_from(["", "a__", "b__", "a_", "*__"]), names)
odd: st.SearchStrategy[Any] = st.sampled_from(
    ["*", None, {"do": "allow"}, {"tool": 1, "do": "allow"}, {"tool": "*", "do": "maybe"}, {"tool": "*", "do": []}]
)
rules = st.fixed_dictionaries(
    {"tool": globs, "do": st.sampled_from(["allow", "ask", "deny"])},
    optional={
        "remember": st.booleans(),
        "edit": st.booleans(),
        "approvers": st.sampled_from([[], ["bob"], ["group:a", "bob"], "bob"]),
    },
)
lists = st.lists(rules | rules | rules | odd, max_size=4)


@settings(max_examples=400, deadline=None)
@given(st.lists(names, min_size=1, max_size=4), lists, st.lists(lists, max_size=3), lists, st.lists(names, max_size=2))
@example(
    ["a"], [], [[{"tool": "a_", "do": "deny"}, {"tool": "a__a", "do": "ask"}]], [{"tool": "[a]__a", "do": "ask"}], []
)
@example(["["], [{"tool": "[", "do": "allow"}], [[{"tool": "a__[", "do": "ask", "edit": True}]], [], ["["])
def test_they_say_the_same(
    tools: list[str], server: list[Any], groups: list[list[Any]], agent: list[Any], read_only: list[str]
) -> None:
    members = [GroupRules(f"group-{number}", rules) for number, rules in enumerate(groups)]
    rulings = Rulings(members, agent)
    for slug in ("a", "b"):
        said = rulings.of(slug, server=server, read_only=read_only)
        for tool in tools:
            apart = rule_lists(slug, tool, server=server, groups=members, agent=agent)
            assert said(tool) == verdict(tool, lists=apart, read_only=read_only)
