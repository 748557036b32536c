"""The list of conversations: order, pages, search, and what is left out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Organization, User
from agents.models import Agent
from chatui.errors import InvalidRequestError
from conversations.api.listing import Cursor, page
from conversations.models import Conversation, Turn
from tests.conversations.api.conftest import Enter, World, make_conversation, make_exchange

NOW = timezone.now()


@pytest.fixture
def actor(bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(bob)


@pytest.fixture
def agent(organization: Organization, make_agent: Callable[..., Agent]) -> Agent:
    return make_agent(organization)


def listed(actor: Actor, text: str = "", **options: Any) -> list[str]:
    options = {"archived": False, "cursor": None, "limit": 50} | options
    return [item["title"] for item in page(actor, text=text, **options)["items"]]


def chat(owner: User, agent: Agent, title: str, minutes: int = 0, **fields: Any) -> Conversation:
    return make_conversation(owner, agent, title=title, active_at=NOW - timedelta(minutes=minutes), **fields)


def test_the_newest_activity_comes_first_and_what_is_pinned_before(actor: Actor, bob: User, agent: Agent) -> None:
    for title, minutes, pinned in (("old", 9, False), ("new", 1, False), ("pin old", 8, True), ("pin new", 7, True)):
        chat(bob, agent, title, minutes, pinned=pinned)
    assert listed(actor) == ["pin new", "pin old", "new", "old"]


def test_only_ones_own_chats_are_listed(
    actor: Actor, bob: User, alice: User, agent: Agent, charlie: User, make_agent: Callable[..., Agent]
) -> None:
    chat(bob, agent, "mine")
    chat(bob, agent, "temporary", kind="temporary")
    chat(bob, agent, "api", kind="api")
    chat(bob, agent, "deleted", deleted_at=NOW)
    chat(bob, agent, "archived", archived=True)
    chat(alice, agent, "alice's")
    chat(charlie, make_agent(charlie.memberships.get().organization), "charlie's")
    assert listed(actor) == ["mine"]
    assert listed(actor, archived=True) == ["archived"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pages_hold_everything_once(actor: Actor, bob: User, agent: Agent, size: int) -> None:
    for number in range(7):  # several with the very same time: the id decides
        chat(bob, agent, f"chat {number}", minutes=number // 3, pinned=number % 4 == 0)
    expected = listed(actor)
    seen: list[str] = []
    cursor = None
    while True:
        answer = page(actor, text="", archived=False, cursor=cursor, limit=size)
        seen += [item["title"] for item in answer["items"]]
        assert len(answer["items"]) <= size
        if answer["next"] is None:
            break
        cursor = Cursor.decode(answer["next"])
    assert seen == expected
    assert len(set(seen)) == 7


def test_what_arrives_between_two_pages_moves_nothing(actor: Actor, bob: User, agent: Agent) -> None:
    for number in range(4):
        chat(bob, agent, f"chat {number}", minutes=number + 1)
    first = page(actor, text="", archived=False, cursor=None, limit=2)
    chat(bob, agent, "just now")
    rest = page(actor, text="", archived=False, cursor=Cursor.decode(first["next"]), limit=50)
    assert [item["title"] for item in rest["items"]] == ["chat 2", "chat 3"]


@pytest.mark.parametrize(
    "text", ["x", "!!!", "bnVsbA", "e30", "W10", "WzEsMiwzXQ", "é", "WzEsICIyMDI2LTAxLTAxIiwgIngiXQ"]
)
def test_a_cursor_of_somebody_elses_making_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="cursor"):
        Cursor.decode(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("季度报告", ["report"]),
        ("报", ["report"]),
        ("weather", ["Weather in Köln"]),
        ("WEATHER", ["Weather in Köln"]),
        ("needle", ["report", "stack"]),
        ("NEEDLE", ["report", "stack"]),
        ("100%", ["percent"]),
        ("%", ["percent"]),
        ("_", ["underscore_"]),
        ("\\", []),
        ("nothing like it", []),
        ("secret of alice", []),
    ],
)
def test_titles_and_messages_are_searched_for_the_very_text(
    actor: Actor, bob: User, alice: User, agent: Agent, text: str, found: list[str]
) -> None:
    make_exchange(chat(bob, agent, "report", 1), "写一份季度报告", "A Needle in it")
    make_exchange(chat(bob, agent, "stack", 2), "find the needle", "ok")
    chat(bob, agent, "Weather in Köln", 3)
    make_exchange(chat(bob, agent, "percent", 4), "give 100% now", "ok")
    chat(bob, agent, "underscore_", 5)
    make_exchange(chat(alice, agent, "needle of alice"), "the secret of alice", "ok")
    assert listed(actor, text) == found


def test_a_conversation_is_found_once_however_often_it_says_the_word(actor: Actor, bob: User, agent: Agent) -> None:
    conversation = chat(bob, agent, "word")
    for _ in range(3):
        make_exchange(conversation, "the word", "the word")
    assert listed(actor, "word") == ["word"]


def test_an_open_turn_is_shown(actor: Actor, bob: User, agent: Agent) -> None:
    conversation = chat(bob, agent, "busy")
    _, _, turn = make_exchange(conversation, "q", "a")
    assert page(actor, text="", archived=False, cursor=None, limit=5)["items"][0]["turn"] is None
    Turn.objects.filter(pk=turn.pk).update(status="waiting")
    (item,) = page(actor, text="", archived=False, cursor=None, limit=5)["items"]
    assert item["turn"] == {"id": str(turn.pk), "status": "waiting", "seq": 5}
    assert item["agent"] == {"slug": "helper", "name": "Helper"}


def test_the_number_of_queries_does_not_grow(
    actor: Actor, bob: User, agent: Agent, django_assert_num_queries: Callable[..., Any]
) -> None:
    for count in (2, 40):
        for number in range(count):
            make_exchange(chat(bob, agent, f"{count} {number}"), "q", "a")
        with django_assert_num_queries(2):
            page(actor, text="q", archived=False, cursor=None, limit=50)


async def test_over_http_the_parameters_are_checked(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    answer = (await client.get("/api/v1/conversations?q=%20noon%20&limit=1&archived=false")).json()
    assert [item["title"] for item in answer["items"]] == ["Bob's chat"]
    assert answer["next"] is None
    for query in ("limit=0", "limit=101", "limit=x", "limit=%C2%B2", "archived=maybe", "cursor=x", "q=" + "x" * 201):
        response = await client.get(f"/api/v1/conversations?{query}")
        assert response.status_code == 400, query
        assert query.partition("=")[0] in response.json()["error"]["message"]
    assert (await client.get("/api/v1/conversations?q=%00")).status_code == 200
