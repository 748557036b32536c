"""Which model writes an answer: the agent's own, or another one with which a question may be answered again."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from accounts.models import Organization, User
from agents.models import Agent, ModelProfile
from chatui.rows import in_rows
from conversations.models import Conversation, UsageRecord
from tests.conversations.chat import Chat, Frame
from tests.fakes.endpoint import Endpoint, text


@pytest.fixture
def other(agent: Agent) -> ModelProfile:
    """A second model at the agent's endpoint, with prices of its own."""
    profile = ModelProfile.objects.create(
        organization=agent.organization,
        endpoint=agent.model.endpoint,
        slug="big",
        name="big-model-1",
        title="Big",
        input_price=1_000,
        output_price=0,
    )
    agent.other_models.add(profile)
    return profile


async def again(chat: Chat, answer: Frame, **fields: str) -> Frame:
    await chat.send("turn.regenerate", request_id=str(uuid4()), message_id=answer["message"]["id"], **fields)
    return await chat.until("turn.finished", lambda frame: frame["turn_id"] != answer["turn_id"])


@pytest.mark.parametrize("name", ["big", "big-model-1", "{endpoint}/big"])
async def test_a_question_is_answered_again_by_another_model_which_the_answer_and_its_usage_name(
    owner: User, endpoint: Endpoint, agent: Agent, other: ModelProfile, name: str
) -> None:
    endpoint.script(text("one"), text("two"), text("three"))
    async with await Chat.of(owner) as chat:
        first = await chat.ask("q")
        second = await again(chat, first, model=name.format(endpoint=agent.model.endpoint.slug))
        assert second["message"]["model"] == "Big"
        assert endpoint.last.body["model"] == "big-model-1"
        assert second["message"]["siblings"] == [first["message"]["id"], second["message"]["id"]]
        await chat.ask("next", conversation_id=str((await Conversation.objects.as_system().aget()).pk))
    records = [record async for record in UsageRecord.objects.as_system().order_by("created_at")]
    own = f"{agent.model.endpoint.slug}/{agent.model.slug}"
    assert [record.model for record in records] == [own, f"{agent.model.endpoint.slug}/big", own]
    assert float(records[1].cost or 0) == pytest.approx(records[1].input_tokens / 1000) != 0
    assert endpoint.last.body["model"] == agent.model.name


async def test_what_the_other_model_was_stopped_at_it_continues_itself(
    owner: User, endpoint: Endpoint, other: ModelProfile
) -> None:
    gate = asyncio.Event()
    endpoint.script(text("one"), text("The answer ", gate), text("is 42."))
    async with await Chat.of(owner) as chat:
        first = await chat.ask("q")
        await chat.send("turn.regenerate", request_id=str(uuid4()), message_id=first["message"]["id"], model="big")
        turn = (await chat.until("turn.started", lambda frame: frame["turn_id"] != first["turn_id"]))["turn_id"]
        await chat.until("text.delta", lambda frame: frame["turn_id"] == turn)
        await chat.send("turn.stop", turn_id=turn)
        stopped = await chat.until("turn.finished", lambda frame: frame["turn_id"] == turn)
        await chat.send("turn.continue", request_id=str(uuid4()), message_id=stopped["message"]["id"])
        await chat.until("turn.finished", lambda frame: frame["turn_id"] not in (first["turn_id"], turn))
    assert endpoint.last.body["model"] == "big-model-1"


async def test_a_model_that_the_agent_does_not_list_is_not_offered(
    owner: User, endpoint: Endpoint, agent: Agent, other: ModelProfile, organization: Organization
) -> None:
    await in_rows(
        lambda: ModelProfile.objects.create(
            organization=organization, endpoint=agent.model.endpoint, slug="secret", name="secret"
        )
    )
    endpoint.script(text("one"))
    async with await Chat.of(owner) as chat:
        first = await chat.ask("q")
        await chat.send("turn.regenerate", request_id=str(uuid4()), message_id=first["message"]["id"], model="secret")
        error = await chat.until("error")
    assert (error["code"], error["message"]) == ("not_offered", "This agent does not offer the model “secret”.")
    assert len(endpoint.requests) == 1


async def test_a_model_that_is_taken_back_before_the_turn_runs_is_not_used(
    owner: User, endpoint: Endpoint, agent: Agent, other: ModelProfile
) -> None:
    from chatui.errors import NotFoundError
    from conversations import chosen_model

    profile = await in_rows(chosen_model.choose, agent, "big")
    options = chosen_model.option_of(agent, profile)
    assert (await in_rows(chosen_model.chosen, agent, options)).pk == other.pk
    await in_rows(lambda: agent.other_models.clear())
    fresh = await Agent.objects.as_system().select_related("model__endpoint").aget(pk=agent.pk)
    with pytest.raises(NotFoundError) as error:
        await in_rows(chosen_model.chosen, fresh, options)
    assert error.value.public_message == "The model that was chosen for this answer is not offered any more."


async def test_a_model_that_became_the_agents_own_before_the_turn_runs_is_used(
    owner: User, agent: Agent, other: ModelProfile
) -> None:
    from conversations import chosen_model

    options = chosen_model.option_of(agent, other)
    await Agent.objects.as_system().filter(pk=agent.pk).aupdate(model=other)
    fresh = await Agent.objects.as_system().select_related("model__endpoint").aget(pk=agent.pk)
    assert (await in_rows(chosen_model.chosen, fresh, options)).pk == other.pk
