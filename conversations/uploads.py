"""What an uploaded file is, decided by its content and never by its name, and how a file is given back."""

from __future__ import annotations

import unicodedata
import warnings
from dataclasses import dataclass
from io import BytesIO

from django.conf import settings
from django.core.files.base import ContentFile
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from PIL import Image, UnidentifiedImageError

from accounts.actors import Actor
from chatui.errors import ChatUIError, InvalidRequestError, TooLargeError
from chatui.text import clean
from conversations.models import Attachment
from mcpservers.visible import visible

IMAGE_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
MAX_PIXELS = 50_000_000
NAME_LIMIT = 150
TEXT_TYPE = "text/plain"
# Controls that a text file may hold: tab, line feed, form feed, carriage return, escape (coloured logs).
_TEXT_CONTROLS = frozenset(b"\t\n\f\r\x1b")
_BINARY = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)


class UnsupportedFileError(ChatUIError):
    """The file is of a kind that cannot be attached; the message says which can."""

    code = "unsupported_file"
    status = 415
    public_message = "This kind of file cannot be attached. Text files in UTF-8 and PNG, JPEG, WebP and GIF images can."


@dataclass(frozen=True, slots=True)
class Kind:
    """`text` is what a model is given of a text file; empty for an image."""

    content_type: str
    text: str = ""


def kind_of(data: bytes) -> Kind:
    """What `data` is. Raises `InvalidRequestError` (empty, broken image), `TooLargeError`, `UnsupportedFileError`."""
    if not data:
        raise InvalidRequestError(public_message="The file is empty.")
    if (image := _image_type(data)) is not None:
        return Kind(image)
    if data.translate(None, _BINARY) == data:
        try:
            return Kind(TEXT_TYPE, clean(data.decode("utf-8-sig")))
        except UnicodeDecodeError:
            pass
    raise UnsupportedFileError


def _image_type(data: bytes) -> str | None:
    """The media type of an image that can be decoded whole; None for what is no image of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit below is the stricter one
            with Image.open(BytesIO(data), formats=tuple(IMAGE_TYPES)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise TooLargeError(public_message=f"An image has at most {MAX_PIXELS // 1_000_000} megapixels.")
                image.load()
                return IMAGE_TYPES[str(image.format)]
    except UnidentifiedImageError:
        return None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise InvalidRequestError(str(error), public_message="The image is broken: it cannot be opened.") from None


def safe_name(name: str) -> str:
    """The last step of a path, without what an eye cannot see or a file system cannot hold; at most 150 characters."""
    name = unicodedata.normalize("NFC", visible(name.replace("\x00", "").replace("\\", "/")).rsplit("/", 1)[-1])
    name = "".join(" " if character in '\t\n:*?"<>|' else character for character in name)
    name = " ".join(name.split()).strip(" .")
    if len(name) > NAME_LIMIT:
        stem, dot, extension = name.rpartition(".")
        keep = NAME_LIMIT - len(extension) - 1
        name = f"{stem[:keep]}.{extension}" if dot and len(extension) <= 16 else name[:NAME_LIMIT]
    return name or "file"


def store(actor: Actor, data: bytes, name: str, *, images_only: bool = False) -> Attachment:
    """Keep an upload of the actor as an attachment that no message has yet. Raises as `kind_of`."""
    if len(data) > settings.ATTACHMENT_MAX_BYTES:
        raise TooLargeError(public_message=too_large_message())
    kind = kind_of(data)
    if images_only and kind.content_type == TEXT_TYPE:
        raise UnsupportedFileError(public_message="This is not a PNG, JPEG, WebP or GIF image.")
    attachment: Attachment = Attachment.objects.create(
        organization_id=actor.organization_id,
        owner_id=actor.user_id,
        file=ContentFile(data, name="upload"),
        name=safe_name(name),
        content_type=kind.content_type,
        size=len(data),
        text=kind.text,
    )
    return attachment


def too_large_message() -> str:
    return f"A file has at most {settings.ATTACHMENT_MAX_BYTES / 2**20:.3g} MiB."


def file_response(attachment: Attachment, data: bytes) -> HttpResponse:
    """`data` as a download, or in place if it is a safe image; in no case as a page of this site."""
    image = attachment.content_type in IMAGE_TYPES.values()
    content_type = attachment.content_type
    if content_type.startswith("text/"):
        content_type = f"{TEXT_TYPE}; charset=utf-8"
    elif not image:
        content_type = "application/octet-stream"
    response = HttpResponse(data, content_type=content_type)
    disposition = content_disposition_header(as_attachment=not image, filename=attachment.name)
    response["Content-Disposition"] = disposition or "attachment"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox; frame-ancestors 'none'"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Cache-Control"] = "private, max-age=3600, immutable"
    return response
