"""The files that messages name, loaded for a model: texts from rows, images from the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from agents.context import IMAGE_TYPES
from conversations.history import AttachedFile
from conversations.models import Attachment, Message, ToolCall

logger = logging.getLogger(__name__)

MAX_IMAGES = 20  # the newest; what an endpoint takes in one request
MAX_IMAGE_BYTES = 5 * 1024 * 1024


def attached_files(
    path: Sequence[Message], calls: Mapping[UUID, Sequence[ToolCall]] | None = None
) -> dict[str, AttachedFile]:
    """The files that the messages of `path` name, and the images that the calls of its last answer brought, by id.

    A sync function of row work: at most one query (none where there are no files), then the bytes of the newest
    images. An image that is missing from the store, or too large, comes without bytes.
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
    with_bytes = {row.pk for row in _newest_images(rows)}
    return {
        str(row.pk): AttachedFile(row.name, row.content_type, row.text, _bytes(row) if row.pk in with_bytes else b"")
        for row in rows
    }


def _newest_images(rows: Sequence[Attachment]) -> Iterable[Attachment]:
    images = [row for row in rows if row.content_type in IMAGE_TYPES and row.size <= MAX_IMAGE_BYTES]
    return images[-MAX_IMAGES:]


def _bytes(row: Attachment) -> bytes:
    try:
        with row.file.open("rb") as file:
            data: bytes = file.read()
            return data
    except OSError:
        logger.warning("The file of attachment %s is not in the store", row.pk)
        return b""
