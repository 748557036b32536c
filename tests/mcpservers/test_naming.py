"""Exposed names: legal for every endpoint, unique by construction, the same whatever else is offered."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpservers.naming import exposed_name, is_own

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
SLUGS = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?", fullmatch=True)
TOOLS = st.one_of(st.text(max_size=80), st.from_regex(r"[a-z_-]{1,70}(?:_[0-9a-f]{8})?", fullmatch=True))


def test_a_plain_name_stays_readable() -> None:
    assert exposed_name("tickets", "search_issues") == "tickets__search_issues"
    assert exposed_name("a-b", "get-Thing_2") == "a-b__get-Thing_2"


def test_a_name_never_starts_with_a_digit() -> None:
    assert exposed_name("7zip", "2fa_code").startswith("_7zip__2fa_code_")


@pytest.mark.parametrize("tool", ["a b", "a.b", "名前", "a" * 80, "re\u200bad", "x/y", "ä", "\x00", "\ud800"])
def test_an_awkward_name_ends_in_a_hash(tool: str) -> None:
    assert re.fullmatch(r"s__[a-zA-Z0-9_-]*_[0-9a-f]{8}", exposed_name("s", tool))


def test_what_differs_only_in_illegal_characters_or_beyond_the_cut_stays_apart() -> None:
    names = ["a b", "a.b", "a_b", "a" * 70, "a" * 71, "a" * 61 + "b", "a" * 61 + "c", "re\u200bad", "read"]
    assert len({exposed_name("s", name) for name in names}) == len(names)


def test_a_name_that_looks_like_a_changed_one_is_changed_too() -> None:
    changed = exposed_name("s", "a b").removeprefix("s__")
    assert exposed_name("s", changed) != exposed_name("s", "a b")


def test_a_hidden_character_does_not_show_in_the_readable_part() -> None:
    assert exposed_name("s", "re\u200bad").startswith("s__read_")


def test_our_own_tools_are_the_names_without_the_separator() -> None:
    assert is_own("read_result")
    assert not is_own("s__read_result")


@given(SLUGS, TOOLS)
def test_every_name_is_legal_and_stable_and_not_ours(slug: str, tool: str) -> None:
    name = exposed_name(slug, tool)
    assert LEGAL.fullmatch(name)
    assert name == exposed_name(slug, tool)
    assert not is_own(name)


@given(st.sets(st.tuples(SLUGS, TOOLS), max_size=30))
def test_names_are_unique_across_servers_and_tools(pairs: set[tuple[str, str]]) -> None:
    assert len({exposed_name(slug, tool) for slug, tool in pairs}) == len(pairs)


@given(SLUGS, SLUGS, TOOLS, TOOLS)
def test_two_servers_never_meet(one: str, other: str, tool: str, another: str) -> None:
    assert one == other or exposed_name(one, tool) != exposed_name(other, another)
