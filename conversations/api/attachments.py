"""Uploading a file for a message, and reading attachments and artifacts back."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, JsonResponse

from accounts.actors import Actor
from chatui.errors import InvalidRequestError, NotFoundError, TooLargeError
from conversations import uploads
from conversations.api.door import Call
from conversations.models import Attachment
from conversations.representations import attachment_json

FORM_ROOM = 64 * 1024  # bytes of a multipart form beside its file


async def upload(call: Call) -> HttpResponse:
    """A multipart form with one field, `file`. 201 with the attachment, to be named in a message's `content`."""
    length = call.request.headers.get("Content-Length", "")
    if length.isdigit() and int(length) > settings.ATTACHMENT_MAX_BYTES + FORM_ROOM:
        raise TooLargeError(public_message=uploads.too_large_message())
    if call.request.content_type != "multipart/form-data":
        raise InvalidRequestError(public_message="The body is a multipart/form-data form with the field “file”.")
    return JsonResponse(await call.rows(_store, call), status=201)


def _store(actor: Actor, call: Call) -> dict[str, object]:
    # In a row thread: reading the form parses it, and checking an image decodes it.
    files = call.request.FILES.getlist("file")
    if len(files) != 1 or not isinstance(files[0], UploadedFile):
        raise InvalidRequestError(public_message="The form has exactly one file, in the field “file”.")
    return attachment_json(uploads.store(actor, files[0].read(), files[0].name or ""))


async def content(call: Call, attachment: UUID) -> HttpResponse:
    return uploads.file_response(*await call.rows(_load, attachment))


def _load(actor: Actor, attachment_id: UUID) -> tuple[Attachment, bytes]:
    attachment = Attachment.objects.visible_to(actor).defer("text").filter(pk=attachment_id).first()
    if attachment is None:
        raise NotFoundError(public_message="There is no such attachment.")
    try:
        with attachment.file.open("rb") as file:
            return attachment, file.read()
    except FileNotFoundError:
        raise NotFoundError(public_message="The file of this attachment is gone.") from None
