"""Finding tools by words: names before descriptions, any script, always the same order."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tool_index import Described, ToolIndex, terms

TOOLS = [
    Described("github__create_issue", "create_issue", "Create issue", "Opens a new issue in a repository.", "GitHub"),
    Described("github__list_issues", "list_issues", "", "Lists the issues of a repository, newest first.", "GitHub"),
    Described("github__mergePullRequest", "mergePullRequest", "", "Merges a pull request.", "GitHub"),
    Described("jira__create_ticket", "create_ticket", "", "Creates a ticket, which others call an issue.", "Jira"),
    Described("drive__upload", "upload", "Upload a file", "Puts a file into a folder.", "Drive"),
    Described("weather__forecast", "forecast", "天气预报", "查询指定城市未来几天的天气。", "气象局"),
    Described("trains__search", "search", "车票查询", "查询两个城市之间的火车票余票。", "铁路"),
    Described("cafe__menu", "menu", "Menú", "Muestra el menú del café.", "Café"),
    Described("auth__OAuth2Login", "OAuth2Login", "", "Signs in.", "Accounts"),
]
INDEX = ToolIndex(TOOLS)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "github__create_issue"),
        ("CREATE ISSUE", "github__create_issue"),
        ("create_issue", "github__create_issue"),
        ("creating issues on github", "github__create_issue"),
        ("newest issues", "github__list_issues"),
        ("merge pull request", "github__mergePullRequest"),
        ("jira", "jira__create_ticket"),
        ("how do I upload files?", "drive__upload"),
        ("天气", "weather__forecast"),
        ("查天气", "weather__forecast"),
        ("火车票", "trains__search"),
        ("铁路 余票", "trains__search"),
        ("menu del cafe", "cafe__menu"),
        ("MENÚ", "cafe__menu"),
        ("oauth", "auth__OAuth2Login"),
        ("forecast", "weather__forecast"),
        ("ｆｏｒｅｃａｓｔ", "weather__forecast"),
        ("forec", "weather__forecast"),
        ("票", "trains__search"),
    ],
)
def test_what_is_meant_comes_first(query: str, best: str) -> None:
    assert INDEX.search(query, 5)[0] == best


@pytest.mark.parametrize("name", ["weather__forecast", "mergePullRequest", "search"])
def test_a_tools_own_name_finds_it_before_all_others(name: str) -> None:
    assert name in INDEX.search(name, 5)[0]


@pytest.mark.parametrize("query", ["", "  ", "?!", "zebra", "月球"])
def test_what_there_is_not_is_not_found(query: str) -> None:
    assert INDEX.search(query, 5) == []


def test_what_fits_much_worse_is_left_out() -> None:
    assert INDEX.search("create issue", 10)[:1] == ["github__create_issue"]
    assert "drive__upload" not in INDEX.search("create issue", 10)


def test_no_more_are_found_than_were_asked_for() -> None:
    assert len(INDEX.search("issue", 10)) == 3
    assert len(INDEX.search("issue", 2)) == 2


def test_equals_are_in_the_order_of_the_catalogue() -> None:
    same = [Described(f"s__{n}", "copy", "", "Copies.", "S") for n in range(30)]
    assert ToolIndex(same).search("copy", 10) == [f"s__{n}" for n in range(10)]


def test_compound_names_are_also_found_in_parts() -> None:
    assert terms("getHTTPResponse_v2") == ["get", "http", "response", "gethttpresponse", "v", "2", "v2"]
    assert terms("北京天气") == ["北京", "京天", "天气"]


@given(st.text(max_size=60))
def test_any_words_give_the_same_tools_every_time(query: str) -> None:
    found = INDEX.search(query, 5)
    assert found == ToolIndex(TOOLS).search(query, 5)
    assert len(set(found)) == len(found) <= 5


def test_a_thousand_tools_are_searched_quickly() -> None:
    words = [
        "create",
        "read",
        "update",
        "delete",
        "issue",
        "file",
        "user",
        "order",
        "invoice",
        "mail",
        "page",
        "row",
        "x",
        "y",
    ]
    many = [
        Described(f"s__{n}", f"{words[n % 14]}_{words[n % 13]}_{n}", "", f"{words[n % 11]} " * 100, "S")
        for n in range(1_000)
    ]
    began = time.thread_time()
    index = ToolIndex(many)
    built = time.thread_time()
    index.search("update the invoice of a user", 5)
    assert built - began < 2
    assert time.thread_time() - built < 0.2
