"""What a sign-in is begun with: read strictly, and never a way to another site."""

from __future__ import annotations

import uuid

import pytest

from chatui.errors import InvalidRequestError
from conversations.linking.browser import browser_of, known_browser
from conversations.linking.wanted import local_back, split_return, wanted

HOME = "/o/acme/connections/"


def test_an_address_without_anything_leads_back_to_the_connections() -> None:
    asked = wanted({}, "acme")
    assert (asked.account_id, asked.scopes, asked.back, asked.window) == (None, (), HOME, False)
    assert split_return(asked.return_to) == (HOME, False)


def test_a_window_of_its_own_is_remembered_in_the_way_back() -> None:
    asked = wanted({"back": "/o/acme/c/1/", "window": "1", "scopes": " b  a b"}, "acme")
    assert asked.scopes == ("b", "a")
    assert split_return(asked.return_to) == ("/o/acme/c/1/", True)


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example/o/acme/",
        "/\\evil.example",
        "/o/acme\\..\\..\\evil",
        "/o/acme/\t/evil.example",
        "/o/globex/",
        "/admin/",
        "javascript:alert(1)",
        "https:evil.example",
        "/%09/evil.example",
        "/o/acme/" + "x" * 600,
    ],
)
def test_the_way_back_is_a_page_of_the_organization(path: str) -> None:
    assert local_back(path, "acme") == HOME


def test_a_mark_of_somebody_elses_in_the_way_back_is_dropped() -> None:
    assert local_back("/o/acme/#close", "acme") == "/o/acme/"
    assert split_return("//evil.example/#close") == ("/", True)


@pytest.mark.parametrize(
    "values", [{"scopes": 'a"b'}, {"scopes": "ä"}, {"scopes": "x " * 0 + "y" * 201}, {"account": "7"}]
)
def test_what_makes_no_sense_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        wanted(values, "acme")
    with pytest.raises(InvalidRequestError):
        wanted({"scopes": " ".join(f"s{number}" for number in range(51))}, "acme")


def test_an_account_to_be_linked_again_is_read() -> None:
    account = uuid.uuid4()
    assert wanted({"account": str(account)}, "acme").account_id == account


def test_a_browser_has_one_random_value_which_is_not_made_by_asking() -> None:
    session: dict[str, str] = {}
    assert known_browser(session) == ""
    assert session == {}
    value = browser_of(session)
    assert len(value) >= 43
    assert browser_of(session) == known_browser(session) == value
    assert browser_of({}) != value
