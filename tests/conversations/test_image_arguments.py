"""A turn whose model names an uploaded image in a call: the server gets the image, everything else keeps the name."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from PIL import Image

from accounts.models import Membership, User
from agents.models import Agent
from chatui.rows import in_rows
from conversations.models import Attachment, ToolCall
from mcpservers.models import MCPServer, ServerGrant
from tests.conversations.chat import Chat
from tests.fakes.anew import served_anew
from tests.fakes.endpoint import Endpoint, calls, text
from tests.fakes.mcp_server import Exchange, FakeMCPServer

EDIT = {
    "name": "edit",
    "description": "Edits an image.",
    "inputSchema": {"type": "object", "properties": {"image": {"type": "string"}, "caption": {"type": "string"}}},
}


def picture() -> bytes:
    buffer = BytesIO()
    Image.effect_noise((40, 40), 90).save(buffer, "PNG")
    return buffer.getvalue()


PICTURE = picture()


@pytest.fixture
async def fake(transactional_db: None) -> AsyncIterator[FakeMCPServer]:
    async with served_anew(tools=[EDIT]) as server:
        yield server


@pytest.fixture
def agent(
    fake: FakeMCPServer, house: Any, endpoint: Endpoint, organization: Any, make_agent: Callable[..., Agent]
) -> Agent:
    server = MCPServer.objects.create(
        organization=organization, slug="s", title="S", url=fake.url, rules=[{"tool": "*", "do": "allow"}]
    )
    ServerGrant.objects.create(server=server, whole_organization=True)
    return make_agent(organization, base_url=endpoint.base_url, servers=[server])


@pytest.fixture
def upload(owner: User) -> Attachment:
    organization = Membership.objects.get(user=owner).organization
    made = Attachment(
        organization=organization, owner=owner, name="cat.png", content_type="image/png", size=len(PICTURE)
    )
    made.file.save(str(made.pk), ContentFile(PICTURE), save=True)
    return made


async def ask(chat: Chat, upload: Attachment) -> Any:
    content = [{"type": "text", "text": "edit it"}, {"type": "attachment", "id": str(upload.pk)}]
    await chat.send("turn.start", request_id=str(uuid4()), agent="helper", content=content)
    return await chat.until("turn.finished")


async def test_the_server_gets_the_image_and_rows_frames_and_history_the_name(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, upload: Attachment
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.error(-32000, f"cannot edit {exchange.params['arguments']['image']}")

    fake.on("tools/call", refuse)
    endpoint.script(calls(("s__edit", {"image": "image_1", "caption": "image_1"})), text("A pity."))
    async with await Chat.of(owner) as chat:
        finished = await ask(chat, upload)
        assert finished["outcome"] == "completed"
        assert "base64" not in str(chat.seen)
    sent = fake.exchanges_of("tools/call")[0].params["arguments"]
    assert sent == {"image": f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", "caption": "image_1"}
    call = await in_rows(ToolCall.objects.get)
    assert call.arguments == {"image": "image_1", "caption": "image_1"}
    assert "cannot edit image_1" in call.result_text
    assert "base64" not in str(endpoint.last.messages)
    assert '"image_1"' in str(endpoint.last.messages[2]["tool_calls"])


async def test_an_image_that_there_is_not_is_told_and_nothing_is_run(
    owner: User, endpoint: Endpoint, fake: FakeMCPServer, upload: Attachment
) -> None:
    endpoint.script(calls(("s__edit", {"image": "image_2"})), text("A pity."))
    async with await Chat.of(owner) as chat:
        await ask(chat, upload)
    assert "There is no image_2. The user's images are: image_1." in endpoint.last.messages[-1]["content"]
    assert not fake.exchanges_of("tools/call")
