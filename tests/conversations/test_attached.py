"""Files that messages name, loaded for a model from rows and the store."""

from __future__ import annotations

from io import BytesIO
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone
from PIL import Image

from agents.providers.chat_model import Capabilities
from conversations import attached
from conversations.attached import attached_files
from conversations.history import model_messages
from conversations.models import Attachment, Conversation, Message, ToolCall, Turn
from conversations.representations import calls_for


def png(width=2, height=2):
    buffer = BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


PNG = png()


@pytest.fixture
def conversation(organization, alice):
    return Conversation.objects.create(organization=organization, owner=alice, active_at=timezone.now())


@pytest.fixture
def attach(conversation):
    def make(name, content_type, data=b"", **fields):
        row = Attachment(
            organization=conversation.organization,
            owner=conversation.owner,
            conversation=conversation,
            name=name,
            content_type=content_type,
            size=len(data),
            **fields,
        )
        row.file.save(str(row.pk), ContentFile(data), save=False)
        row.save()
        return row

    return make


@pytest.fixture
def say(conversation):
    def make(role, *rows, **fields):
        parts = [{"type": "attachment", "id": str(row.pk)} for row in rows]
        return Message.objects.create(conversation=conversation, role=role, parts=parts, **fields)

    return make


def test_texts_come_from_the_row_and_images_with_their_bytes(attach, say, django_assert_num_queries):
    notes, photo = attach("n.txt", "text/plain", b"raw", text="read"), attach("p.png", "image/png", PNG)
    path = [say("user", notes, photo)]
    with django_assert_num_queries(1):
        files = attached_files(path)
    assert (files[str(notes.pk)].text, files[str(notes.pk)].data) == ("read", b"")
    assert files[str(photo.pk)].data == PNG


def test_a_conversation_without_files_costs_no_query(say, django_assert_num_queries):
    path = [say("user")]
    with django_assert_num_queries(0):
        assert attached_files(path) == {}


def test_an_image_that_is_missing_from_the_store_comes_without_bytes(attach, say):
    photo = attach("p.png", "image/png", PNG)
    photo.file.storage.delete(photo.file.name)
    assert attached_files([say("user", photo)])[str(photo.pk)].data == b""


def test_only_the_newest_images_are_loaded(attach, say, monkeypatch):
    monkeypatch.setattr(attached, "MAX_IMAGES", 2)
    rows = [attach(f"{number}.png", "image/png", PNG) for number in range(3)]
    files = attached_files([say("user", *rows[:2]), say("assistant"), say("user", rows[2])])
    assert [bool(files[str(row.pk)].data) for row in rows] == [False, True, True]


def test_a_large_image_comes_as_a_smaller_one_of_the_type_that_it_then_has(attach, say):
    photo = attach("p.png", "image/png", png(3000, 10))
    file = attached_files([say("user", photo)])[str(photo.pk)]
    assert file.content_type == "image/jpeg"
    assert file.data.startswith(b"\xff\xd8\xff")


def test_a_file_that_was_deleted_is_not_there(say, attach):
    row = attach("n.txt", "text/plain")
    message = say("user", row)
    row.delete()
    assert attached_files([message]) == {}
    assert attached_files([]) == {}


def test_images_that_the_calls_of_the_answer_brought_are_loaded_for_its_next_round(attach, say, conversation, alice):
    question, answer = say("user"), say("assistant", status=Message.Status.RUNNING)
    turn = Turn.objects.create(
        conversation=conversation, started_by=alice, request_id=uuid4(), user_message=question, message=answer
    )
    call = ToolCall.objects.create(
        turn=turn, message=answer, round=1, position=0, provider_id="c", name="draw", status="ok", result_text="a chart"
    )
    answer.parts = [{"type": "call", "id": str(call.pk), "round": 1}]
    attach("chart.png", "image/png", PNG, call=call)
    attach("sound.wav", "audio/wav", b"wav", call=call)
    question.parts = [{"type": "text", "text": "draw"}]
    path = [question, answer]
    calls = calls_for([answer])
    history = model_messages(
        path, calls, capabilities=Capabilities(images=True), attachments=attached_files(path, calls)
    )
    assert history.open_round is not None
    result = history.open_round.calls[0].result
    assert result is not None
    assert [(artifact.name, artifact.data) for artifact in result.artifacts] == [("chart.png", PNG)]
