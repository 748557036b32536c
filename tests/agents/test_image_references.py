"""`image_1` in arguments: which parameters take an image, in which form, and what stays as the model wrote it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agents.image_references import place, without_images
from agents.parts import ImageContent, ToolResult, ToolStatus

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
B64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{B64}"
IMAGES = {
    "image_1": ImageContent(PNG, "image/png", "image_1"),
    "image_2": ImageContent(b"\xff\xd8\xffjpeg", "image/jpeg", "image_2"),
    "image_3": ImageContent(b"", "image/png", "image_3"),  # no longer in the store
}
TEXT = {"type": "string"}


def schema(name: str, parameter: Any = TEXT) -> dict[str, Any]:
    return {"type": "object", "properties": {name: parameter}}


def put(name: str, parameter: Any = TEXT, value: Any = "image_1") -> Any:
    placed = place({name: value}, schema(name, parameter), IMAGES)
    assert not placed.problem
    return placed.arguments[name]


def described(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": words, **more}


# --- Which parameters take an image, and in which form ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("image", TEXT),
        ("image", {}),
        ("image", {"type": ["string", "null"]}),
        ("image", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ("imageUrl", TEXT),
        ("image_url", described("Where the picture is.")),
        ("input_image", TEXT),
        ("product_photo", TEXT),
        ("image_2", TEXT),
        ("imageToEdit", TEXT),
        ("reference_images", TEXT),
        ("url", described("The URL of the image to describe.")),
        ("source", described("An image: a URL, or base64 data.")),
        ("data", described("The screenshot as a data: URI.")),
        ("file", described("Image, base64 or data URL")),
        ("图片", TEXT),
        ("输入图片", TEXT),
        ("content", described("图片的链接")),
        ("image", described("Base64-encoded image or a URL")),
        ("anything", {"type": "string", "contentMediaType": "image/png"}),
    ],
)
def test_a_parameter_that_takes_an_image_gets_its_data_url(name: str, parameter: Any) -> None:
    assert put(name, parameter) == URL


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("image_base64", TEXT),
        ("imageB64", TEXT),
        ("image", described("The image, base64-encoded.")),
        ("image", described("Base64 of the image, without the data URL prefix.")),
        ("image", described("Image data (no data: prefix).")),
        ("data", {"type": "string", "contentEncoding": "base64", "description": "The picture"}),
        ("base64", described("The image.")),
    ],
)
def test_a_parameter_that_wants_base64_alone_gets_it(name: str, parameter: Any) -> None:
    assert put(name, parameter) == B64


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("text", TEXT),
        ("query", described("What the image should show, base64 is not needed.")),
        ("image_name", TEXT),
        ("image_path", described("Where the image lies on the server.")),
        ("image_id", TEXT),
        ("image_style", TEXT),
        ("imageCaption", TEXT),
        ("logo_position", TEXT),
        ("image", {"type": "integer"}),
        ("image", {"type": "object"}),
        ("image", {"enum": ["image_1", "image_2"]}),
        ("image", described("The Docker image to run.")),
        ("url", described("The page to open.")),
        ("data", described("Rows to insert, base64-encoded.")),
        ("file", described("Where the picture lies.")),
        ("message", described("What to say about the image at the URL.")),
    ],
)
def test_a_parameter_that_merely_speaks_of_an_image_keeps_the_name(name: str, parameter: Any) -> None:
    assert put(name, parameter) == "image_1"


@pytest.mark.parametrize("value", ["image_1", "IMAGE_1", " image_1 ", "[image_1]", '"image_1"'])
def test_a_name_is_known_however_a_model_writes_it(value: str) -> None:
    assert put("image", value=value) == URL


@pytest.mark.parametrize("value", ["https://example.org/a.png", "image_1.png", "the image_1", "", 5, None, True])
def test_another_value_is_left_alone(value: Any) -> None:
    assert put("image", value=value) == value


def test_images_within_lists_and_objects_are_found() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "images": {"type": "array", "items": TEXT},
            "image": {"type": "object", "properties": {"data": TEXT, "mimeType": TEXT}},
            "pages": {"type": "array", "items": {"$ref": "#/$defs/page"}},
            "frames": {"type": "array", "description": "Images as base64", "items": TEXT},
        },
        "$defs": {"page": {"type": "object", "properties": {"photo": TEXT, "title": TEXT}}},
    }
    given = {
        "images": ["image_1", "https://example.org"],
        "image": {"data": "image_1", "mimeType": "image/png"},
        "pages": [{"photo": "image_1", "title": "image_1"}],
    }
    placed = place(given, parameters, IMAGES)
    assert placed.arguments == {
        "images": [URL, "https://example.org"],
        "image": {"data": URL, "mimeType": "image/png"},
        "pages": [{"photo": URL, "title": "image_1"}],
    }
    assert list(placed.encoded) == ["image_1"]
    assert given["images"] == ["image_1", "https://example.org"], "the arguments are unchanged"


def test_every_image_has_its_own_type() -> None:
    assert put("image", value="image_2").startswith("data:image/jpeg;base64,")


# --- What cannot be placed ----------------------------------------------------------------------------------------


def problem(value: str, images: Any = IMAGES) -> str:
    return place({"image": value}, schema("image"), images).problem


def test_an_image_that_there_is_not_is_told_with_those_that_there_are() -> None:
    assert problem("image_9") == "There is no image_9. The user's images are: image_1, image_2."


def test_an_image_that_can_no_longer_be_read_is_told() -> None:
    assert "image_3 can no longer be read" in problem("image_3")


def test_where_nothing_was_uploaded_a_name_means_nothing() -> None:
    placed = place({"image": "image_1"}, schema("image"), {})
    assert (placed.arguments, placed.problem) == ({"image": "image_1"}, "")


# --- The short form -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeated", [URL, B64, B64[:200]])
def test_what_a_server_repeats_of_an_image_is_its_name_again(repeated: str) -> None:
    said = f"cannot read '{repeated}' as an image"
    result = ToolResult(ToolStatus.ERROR, said, ({"type": "text", "text": said}, {"type": "json", "value": 1}))
    short = without_images(result, {"image_1": B64})
    assert short.text == "cannot read 'image_1' as an image"
    assert list(short.content) == [{"type": "text", "text": short.text}, {"type": "json", "value": 1}]


def test_a_result_without_images_is_as_it_was() -> None:
    result = ToolResult(ToolStatus.OK, "fine")
    assert without_images(result, {"image_1": B64}) is result
    assert without_images(result, {}) is result


def test_a_schema_that_contains_itself_and_deep_arguments_do_no_harm() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"image": TEXT, "child": {"$ref": "#"}}}
    value: dict[str, Any] = {"image": "image_1"}
    for _ in range(100):
        value = {"child": value}
    assert place(value, tree, IMAGES).arguments == value
    assert place({"child": {"image": "image_1"}}, tree, IMAGES).arguments == {"child": {"image": URL}}
