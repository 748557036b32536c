"""One conversation over HTTP: its fields, its whole tree in few queries, deletion with undo, its calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import AsyncClient

from accounts.models import User
from chatui.rows import in_rows
from conversations.models import Conversation, Message, Question, Turn
from tests.conversations.api.conftest import Enter, World, add_attachment, add_call, make_conversation, make_exchange


async def send(client: AsyncClient, method: str, address: str, body: Any = None) -> Any:
    return await client.generic(method, f"/api/v1/{address}", json.dumps(body or {}).encode(), "application/json")


# --- Fields -------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_read_with_its_open_turn(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    answer = (await client.get(f"/api/v1/conversations/{world.conversation.pk}")).json()
    assert (answer["title"], answer["agent"], answer["turn"]) == (
        "Bob's chat",
        {"slug": "helper", "name": "Helper"},
        None,
    )
    await Turn.objects.filter(pk=world.ids["turn"]).aupdate(status="running")
    answer = (await client.get(f"/api/v1/conversations/{world.conversation.pk}")).json()
    assert answer["turn"] == {"id": str(world.ids["turn"]), "status": "running", "seq": 5}


async def test_what_a_person_changes_is_stored_and_the_rest_stays(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    address = f"conversations/{world.conversation.pk}"
    assert (await send(client, "PATCH", address, {"title": "  Two\n lines 🎉 "})).json()["title"] == "Two lines 🎉"
    assert (await send(client, "PATCH", address, {"pinned": True})).json()["pinned"] is True
    assert (await send(client, "PATCH", address, {"archived": True, "pinned": False})).json()["archived"] is True
    assert (await send(client, "PATCH", address)).status_code == 200
    stored = await Conversation.objects.as_system().aget(pk=world.conversation.pk)
    assert (stored.title, stored.title_source, stored.pinned, stored.archived) == (
        "Two lines 🎉",
        "person",
        False,
        True,
    )
    assert stored.active_at == world.conversation.active_at


async def test_a_change_while_an_answer_is_written_names_its_turn(world: World, as_user: Enter) -> None:
    await Turn.objects.filter(pk=world.ids["turn"]).aupdate(status="running")
    client = await as_user(world.bob)
    answer = (await send(client, "PATCH", f"conversations/{world.conversation.pk}", {"title": "Renamed"})).json()
    assert answer["turn"] == {"id": str(world.ids["turn"]), "status": "running", "seq": 5}


async def test_text_that_cannot_be_stored_is_cleaned(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    body = b'{"title": "a\\u0000b \\ud83d \\ud83c\\udf89"}'
    response = await client.generic("PATCH", f"/api/v1/conversations/{world.conversation.pk}", body, "application/json")
    assert response.json()["title"] == "a\ufffdb \ufffd 🎉"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"title": ""}, "title: "),
        ({"title": " \n "}, "title: "),
        ({"title": "x" * 201}, "title: "),
        ({"title": None}, "null"),
        ({"pinned": "yes"}, "pinned: "),
        ({"current_leaf": "x"}, "current_leaf: "),
        ({"owner": "x"}, "owner: "),
        ({"title_source": "model"}, "title_source: "),
    ],
)
async def test_a_change_that_cannot_be_is_named(world: World, as_user: Enter, changes: Any, words: str) -> None:
    response = await send(await as_user(world.bob), "PATCH", f"conversations/{world.conversation.pk}", changes)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert (await Conversation.objects.as_system().aget(pk=world.conversation.pk)).title == "Bob's chat"


async def test_the_chosen_branch_is_remembered_if_it_is_an_answer_of_this_conversation(
    world: World, as_user: Enter
) -> None:
    client = await as_user(world.bob)
    _, other_answer, _ = await in_rows(make_exchange, world.conversation, "Again?", "One.")
    elsewhere = await in_rows(make_conversation, world.bob, world.agent)
    _, foreign_answer, _ = await in_rows(make_exchange, elsewhere, "Elsewhere?", "Yes.")
    address = f"conversations/{world.conversation.pk}"
    response = await send(client, "PATCH", address, {"current_leaf": str(other_answer.pk)})
    assert response.json()["current_leaf"] == str(other_answer.pk)
    for wrong in (foreign_answer.pk, other_answer.parent_id, uuid4()):
        assert (await send(client, "PATCH", address, {"current_leaf": str(wrong)})).status_code == 404
    stored = await Conversation.objects.as_system().aget(pk=world.conversation.pk)
    assert stored.current_leaf_id == other_answer.pk


# --- Deletion -----------------------------------------------------------------------------------------------------


async def test_a_deleted_conversation_is_gone_until_it_is_restored(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    address = f"conversations/{world.conversation.pk}"
    assert (await send(client, "DELETE", address)).status_code == 204
    for gone in (address, f"{address}/messages", f"calls/{world.ids['call_id']}", f"turns/{world.ids['turn']}"):
        assert (await client.get(f"/api/v1/{gone}")).status_code == 404, gone
    assert (await client.get("/api/v1/conversations")).json()["items"] == []
    assert (await send(client, "DELETE", address)).status_code == 404
    for _ in range(2):
        assert (await send(client, "POST", f"{address}/restore")).json()["title"] == "Bob's chat"
    assert len((await client.get(f"/api/v1/{address}/messages")).json()["messages"]) == 2


async def test_deleting_stops_an_answer_that_waits(world: World, as_user: Enter) -> None:
    await Turn.objects.filter(pk=world.ids["turn"]).aupdate(status="waiting", ended_at=None)
    await Message.objects.filter(pk=world.answer.pk).aupdate(status="waiting")
    assert (await send(await as_user(world.bob), "DELETE", f"conversations/{world.conversation.pk}")).status_code == 204
    assert (await Turn.objects.aget(pk=world.ids["turn"])).status == "stopped"
    assert (await Message.objects.aget(pk=world.answer.pk)).status == "stopped"


async def test_others_cannot_restore(world: World, as_user: Enter, alice: User) -> None:
    await Conversation.objects.as_system().filter(pk=world.conversation.pk).aupdate(deleted_at="2026-01-01T00:00Z")
    response = await send(await as_user(alice), "POST", f"conversations/{world.conversation.pk}/restore")
    assert response.status_code == 404
    assert (await Conversation.objects.as_system().aget(pk=world.conversation.pk)).deleted_at is not None


# --- Messages and calls -------------------------------------------------------------------------------------------


async def test_messages_are_the_whole_tree_with_siblings_and_calls(world: World, as_user: Enter) -> None:
    first = await Message.objects.aget(parent=None, conversation=world.conversation)
    second, _, _ = await in_rows(make_exchange, world.conversation, "Edited?", "Yes.")
    answer = (await (await as_user(world.bob)).get(f"/api/v1/conversations/{world.conversation.pk}/messages")).json()
    messages = {message["id"]: message for message in answer["messages"]}
    assert len(messages) == 4
    assert messages[str(first.pk)]["siblings"] == [str(first.pk), str(second.pk)]
    assert messages[str(world.answer.pk)]["parent_id"] == str(first.pk)
    text, call = messages[str(world.answer.pk)]["parts"]
    assert text == {"type": "text", "text": "Noon.", "round": 1}
    assert (call["server"], call["tool"], call["status"], call["arguments"]) == ("clock", "now", "ok", {"zone": "UTC"})
    assert messages[str(world.answer.pk)]["turn_id"] == str(world.ids["turn"])
    assert answer["turn"] is None
    assert answer["conversation"]["id"] == str(world.conversation.pk)


def grow(world: World, exchanges: int) -> None:
    """Add exchanges, each with an attachment, and an answer with a call, an artifact and a question."""
    leaf = world.answer
    for _ in range(exchanges):
        asked, leaf, turn = make_exchange(world.conversation, "q", "a", parent=leaf)
        attachment = add_attachment(world.bob, world.organization, conversation=world.conversation)
        asked.parts.append({"type": "attachment", "id": str(attachment.pk)})
        asked.save(update_fields=["parts"])
        call = add_call(turn, leaf, decided_by=world.bob)
        add_attachment(world.bob, world.organization, call=call, name="chart.png", content_type="image/png")
        Question.objects.create(
            organization=world.organization,
            turn=turn,
            call=call,
            kind="approval",
            asked_of=world.bob,
            state="answered",
            expires_at="2030-01-01T00:00Z",
        )


@pytest.mark.deadline(120)  # a thousand messages are stored first
async def test_opening_a_conversation_costs_ten_queries_at_most_however_long_it_is(
    world: World, as_user: Enter, count_queries: Callable[[], Any]
) -> None:
    client = await as_user(world.bob)
    await Turn.objects.filter(pk=world.ids["turn"]).aupdate(status="running")
    await Message.objects.filter(pk=world.answer.pk).aupdate(status="running")
    counts = []
    for total, more in ((10, 4), (1000, 495)):
        await in_rows(grow, world, more)
        with count_queries() as seen:
            response = await client.get(f"/api/v1/conversations/{world.conversation.pk}/messages")
        answer = response.json()
        assert len(answer["messages"]) == total
        assert answer["turn"]["status"] == "running"
        assert answer["messages"][-1]["parts"][1]["artifacts"][0]["name"] == "chart.png"
        counts.append(len(seen))
        world.answer = await Message.objects.aget(pk=answer["messages"][-1]["id"])
    assert counts[0] == counts[1] <= 10, seen


async def test_a_call_is_read_whole_where_the_message_shortens_it(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    long = "x" * 200_000
    call = await in_rows(
        add_call, await Turn.objects.aget(pk=world.ids["turn"]), world.answer, 1, arguments={"text": long}
    )
    tree = (await client.get(f"/api/v1/conversations/{world.conversation.pk}/messages")).json()
    part = next(part for part in tree["messages"][1]["parts"] if part.get("id") == str(call.pk))
    assert set(part["arguments"]) == {"truncated", "url"}
    whole = (await client.get(part["arguments"]["url"])).json()
    assert whole["arguments"] == {"text": long}
