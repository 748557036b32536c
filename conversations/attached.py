"""The files that messages name, loaded for a model: texts from rows, images from the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from uuid import UUID

from agents.context import IMAGE_TYPES
from conversations.history import AttachedFile
from conversations.model_images import for_model
from conversations.models import Attachment, Message, ToolCall

logger = logging.getLogger(__name__)

MAX_IMAGES = 20  # the newest; what an endpoint takes in one request
_JPEG = b"\xff\xd8\xff"


def attached_files(
    path: Sequence[Message], calls: Mapping[UUID, Sequence[ToolCall]] | None = None
) -> dict[str, AttachedFile]:
    """The files that the messages of `path` name, and the images that the calls of its last answer brought, by id.

    A sync function of row work: at most one query (none where there are no files), then the bytes of the newest
    images, made small enough. An image that is missing from the store, or cannot be read, comes without bytes.
    """
    ids = [part["id"] for message in path for part in message.parts if part["type"] == "attachment"]
    brought = [
        artifact
        for call in (calls or {}).get(path[-1].pk if path else UUID(int=0), ())
        for artifact in call.artifacts.all()
        if artifact.content_type in IMAGE_TYPES
    ]
    found = {str(row.pk): row for row in Attachment.objects.as_system().filter(pk__in=ids)} if ids else {}
    rows = [*(found[id] for id in ids if id in found), *brought]
    newest = {row.pk for row in [row for row in rows if row.content_type in IMAGE_TYPES][-MAX_IMAGES:]}
    return {str(row.pk): _file(row, with_bytes=row.pk in newest) for row in rows}


def _file(row: Attachment, *, with_bytes: bool) -> AttachedFile:
    data = _image(row.pk, row.file.name) if with_bytes else b""
    is_changed = data.startswith(_JPEG)  # one that was too large for a model
    return AttachedFile(row.name, "image/jpeg" if is_changed else row.content_type, row.text, data)


@lru_cache(maxsize=16)
def _image(id: UUID, name: str) -> bytes:
    """The stored image as it is fit for models. Kept, because what an attachment holds never changes."""
    try:
        with Attachment._meta.get_field("file").storage.open(name, "rb") as file:
            return for_model(file.read())
    except OSError:
        logger.warning("The file of attachment %s is not in the store", id)
        return b""
