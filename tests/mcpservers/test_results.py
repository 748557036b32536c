"""Results: whatever a server answers becomes text without base64, parts for people, and files with safe names."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpservers.outcomes import ToolOutcome
from mcpservers.results import NOTHING, NOTHING_WRONG, normalise

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
ESCAPED_PNG = PNG.replace("/", "\\/")  # as JSON encoders of some languages write it
PNG_BYTES = base64.b64decode(PNG)
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01" + bytes(100)).decode()
WAV = base64.b64encode(b"RIFF$\x00\x00\x00WAVEfmt " + bytes(20)).decode()
LIMIT = 50_000


def read(*blocks: Any, images: bool = False, limit: int = LIMIT, schema: Any = None, **more: Any) -> ToolOutcome:
    raw = {"content": list(blocks), **more}
    outcome = normalise(raw, images=images, output_schema=schema, limit=limit)
    assert_sound(outcome, limit)
    return outcome


def assert_sound(outcome: ToolOutcome, limit: int = LIMIT) -> None:
    """What holds for every outcome: it can be stored, sent and shown, and no file is hidden in its text."""
    assert outcome.text
    assert len(outcome.text) <= limit
    shown = json.dumps(outcome.content, allow_nan=False)
    outcome.text.encode()
    for text in (outcome.text, shown):
        assert "\x00" not in text
        assert ";base64," not in text
        assert PNG[:60] not in text
        assert not re.search(r"[A-Za-z0-9+/]{2000}=", text)
    for artifact in outcome.artifacts:
        assert 0 < len(artifact.name) <= 150
        assert not re.search(r"[/\\\x00-\x1f\x7f]", artifact.name)
        assert artifact.name.strip(" .") == artifact.name
        assert re.fullmatch(r"[a-z0-9.+-]+/[a-z0-9.+-]+", artifact.media_type)
    for part in outcome.content:
        assert part["type"] in ("text", "resource", "link", "json", "artifact")
        assert part["type"] != "artifact" or 0 <= part["index"] < len(outcome.artifacts)
    named = [part["index"] for part in outcome.content if part["type"] == "artifact"]
    assert sorted(named) == sorted(set(named)), "each file is shown once"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(data: Any = PNG, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": kind}


def blob(uri: Any, data: Any = "aGk=", kind: Any = "text/plain") -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": data}}


# --- text and structure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [{"content": None}, {}, {"content": []}, {"content": [text("")]}, {"content": 7}, None, []]
)
def test_an_answer_without_content_says_so(raw: Any) -> None:
    outcome = normalise(raw, images=False, output_schema=None, limit=LIMIT)
    assert_sound(outcome)
    assert (outcome.status, outcome.text) == ("ok", NOTHING)


def test_an_error_without_words_says_so() -> None:
    outcome = read(isError=True)
    assert (outcome.status, outcome.text) == ("error", NOTHING_WRONG)


def test_texts_stand_one_below_the_other() -> None:
    outcome = read(text("a"), text("b"))
    assert outcome.text == "a\nb"
    assert outcome.content == (text("a"), text("b"))


@pytest.mark.parametrize(
    ("words", "structured"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{\n  "b": [1, 2],\n  "a": "ü"\n}', {"a": "ü", "b": [1, 2]}),
        ("42", {"result": 42}),
        ("forty-two", {"result": "forty-two"}),
        ('The answer is:\n{"a": 1}', {"a": 1}),
        ("[1, 2]", {"result": [1, 2]}),
        ("true", {"result": True}),
        ("a file's\nlines", {"content": "a file's\nlines"}),
    ],
)
def test_structure_that_repeats_the_text_occurs_once(words: str, structured: Any) -> None:
    outcome = read(text(words), structuredContent=structured)
    assert outcome.text == words
    assert outcome.content == (text(words),)


def test_a_list_that_is_repeated_item_by_item_occurs_once() -> None:
    items = [{"a": 1}, {"a": 2}]
    outcome = read(*(text(json.dumps(item, indent=2)) for item in items), structuredContent={"result": items})
    assert outcome.text.count('"a"') == 2


def test_structure_that_says_more_is_added_as_json() -> None:
    outcome = read(text("2 rows"), structuredContent={"rows": ["ä", "b"]})
    assert outcome.text == '2 rows\n{"rows": ["ä", "b"]}'
    assert outcome.content[1] == {"type": "json", "value": {"rows": ["ä", "b"]}}
    assert read(structuredContent=[1]).text == "[1]"
    assert read(text("10"), structuredContent={"result": 1}).text == '10\n{"result": 1}'


def test_success_that_begins_with_error_is_success() -> None:
    assert read(text("Error: 0 occurrences found in the log"), isError=False).status == "ok"


@pytest.mark.parametrize("flag", ["true", 1, None, {}])
def test_only_true_is_an_error(flag: Any) -> None:
    assert read(text("x"), isError=flag).status == "ok"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_an_error_is_not_held_against_the_output_schema() -> None:
    outcome = read(text("branch is locked"), structuredContent={"code": "E1"}, isError=True, schema=SCHEMA)
    assert outcome.status == "error"
    assert outcome.text.startswith("branch is locked")
    assert "declares" not in outcome.text


def test_a_success_that_breaks_its_output_schema_is_passed_on_and_says_so() -> None:
    outcome = read(text('{"n": "x"}'), structuredContent={"n": "x"}, schema=SCHEMA)
    assert outcome.status == "ok"
    assert outcome.text.startswith('{"n": "x"}\n[')
    assert "$.n: 'x' is not of type 'integer'" in outcome.text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "#/$defs/Nope"},
        {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"$schema": "urn:unknown", "type": "object"},
    ],
)
def test_an_output_schema_that_cannot_be_used_costs_nothing(schema: Any) -> None:
    outcome = read(text("x"), structuredContent={"n": "a" * 60 + "!"}, schema=schema)  # 2^60 ways to match it
    assert "declares" not in outcome.text


def test_meta_is_never_read() -> None:
    outcome = read({**text("a"), "_meta": {"secret": "s"}}, _meta={"secret": "s"})
    assert "secret" not in outcome.text + json.dumps(outcome.content)


def test_nul_and_lone_surrogates_are_replaced_everywhere() -> None:
    bad = "a\x00b\ud83d"
    outcome = read(
        text(bad),
        {"type": "resource", "resource": {"uri": bad, "text": bad}},
        {"type": "resource_link", "uri": bad, "name": bad},
        blob(bad),
        structuredContent={bad: [bad]},
    )
    assert "a\ufffdb\ufffd" in outcome.text


UNREADABLE = [
    None, 7, [], {}, {"type": None}, {"type": "hologram"}, {"type": ["text"]}, {"type": "image"}, {"type": "resource"},
    {"type": "resource", "resource": 7}, {"type": "resource_link"},
]  # fmt: skip


@pytest.mark.parametrize("block", UNREADABLE)
def test_a_part_that_cannot_be_read_leaves_a_note_and_its_siblings(block: Any) -> None:
    outcome = read(text("before"), block, text("after"))
    assert outcome.text.startswith("before\n[")
    assert outcome.text.endswith("]\nafter")


@pytest.mark.parametrize("content", ["plain", {"type": "text", "text": "plain"}, ["plain"]])
def test_content_that_is_not_quite_a_list_of_parts_is_read(content: Any) -> None:
    assert normalise({"content": content}, images=False, output_schema=None, limit=LIMIT).text == "plain"


# --- images and sounds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [True, False])
def test_an_image_is_a_file_and_a_few_words(images: bool) -> None:
    outcome = read(text("screenshot"), image(), images=images)
    (artifact,) = outcome.artifacts
    assert (artifact.data, artifact.media_type, artifact.name) == (PNG_BYTES, "image/png", "image-1.png")
    assert outcome.text.startswith("screenshot\n[image “image-1.png” (image/png)")
    assert ("cannot see" in outcome.text) is not images
    assert outcome.content == (text("screenshot"), {"type": "artifact", "index": 0})


@pytest.mark.parametrize(
    "data",
    [
        f"data:image/png;base64,{PNG}",
        PNG[:40] + "\n" + PNG[40:],
        PNG.rstrip("="),
        PNG.replace("+", "-").replace("/", "_"),
        f"data:image/png;base64,{PNG}".replace("+", "%2B").replace("=", "%3D"),
        f"  {PNG}\r\n",
    ],
    ids=["uri", "wrapped", "unpadded", "url-safe", "percent", "space"],
)
def test_base64_in_any_spelling_is_read(data: str) -> None:
    (artifact,) = read(image(data)).artifacts
    assert artifact.data == PNG_BYTES


@pytest.mark.parametrize("data", ["not-base64!!!", "", "A", None, 7, "data:image/png;base64,"])
def test_data_that_is_no_base64_becomes_a_note(data: Any) -> None:
    outcome = read(image(data))
    assert outcome.artifacts == ()
    assert outcome.text == "[an image that could not be decoded]"


def test_the_type_is_that_of_the_bytes() -> None:
    (artifact,) = read(image(JPEG, "image/png")).artifacts
    assert (artifact.media_type, artifact.name) == ("image/jpeg", "image-1.jpg")


def test_an_image_by_name_alone_is_a_file() -> None:
    outcome = read(image("aGVsbG8gd29ybGQ=", "image/png"), images=True)
    assert outcome.artifacts[0].media_type == "application/octet-stream"
    assert "attached" not in outcome.text


def test_svg_is_a_file_and_no_picture_for_a_model() -> None:
    svg = base64.b64encode(b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>").decode()
    outcome = read(image(svg, "image/png"), images=True)
    assert outcome.artifacts[0].media_type == "image/svg+xml"
    assert outcome.text == "[file “image-1.svg” (image/svg+xml) was given to the user]"


def test_a_sound_is_a_file_that_the_text_names_with_its_type() -> None:
    outcome = read({"type": "audio", "data": WAV, "mimeType": "audio/wav"})
    assert outcome.artifacts[0].name == "audio-1.wav"
    assert "audio/wav" in outcome.text


def test_the_same_file_is_kept_once() -> None:
    outcome = read(image(), image(), text(f"data:image/png;base64,{PNG}"))
    assert len(outcome.artifacts) == 1


def test_more_files_and_parts_than_the_limit_leave_a_note() -> None:
    outcome = read(*(image(base64.b64encode(PNG_BYTES + bytes([at])).decode()) for at in range(70)))
    assert len(outcome.artifacts) == 50
    assert "left out" in outcome.text
    assert "500 more parts were left out" in read(*[text("x")] * 1000).text


# --- files in the text --------------------------------------------------------------------------------------------


def test_every_data_uri_in_a_text_is_taken_out() -> None:
    uris = [f"data:image/png;base64,{base64.b64encode(PNG_BYTES + bytes([at])).decode()}" for at in range(3)]
    outcome = read(text(json.dumps(uris)))
    assert len(outcome.artifacts) == 3
    assert len(json.loads(outcome.text)) == 3, "the text around them stays as it was"


@pytest.mark.parametrize(
    "words",
    [
        f"before data:image/png;base64,{PNG} after",
        f'before {{"src": "data:image\\/png;base64,{ESCAPED_PNG}"}} after',
        f"before data:;base64,{PNG} after",
        f"before DATA:image/png;charset=utf-8;base64,{PNG} after",
        f"before ![](data:image/png;base64,{PNG}) after",
        f"before {PNG} after",
    ],
)
def test_a_file_within_words_is_taken_out_and_the_words_stay(words: str) -> None:
    outcome = read(text(words))
    assert outcome.artifacts[0].media_type == "image/png"
    assert outcome.text.startswith("before ")
    assert outcome.text.endswith(" after")


def test_wrapped_base64_is_taken_out_whole() -> None:
    data = base64.b64encode(PNG_BYTES + bytes(range(200))).decode()
    lines = "\n".join(data[at : at + 76] for at in range(0, len(data), 76))
    outcome = read(text(f"data:image/png;base64,{lines}\n\nthat was it"))
    assert outcome.artifacts[0].data == PNG_BYTES + bytes(range(200))
    assert outcome.text.endswith("that was it")


def test_words_that_only_look_like_base64_stay() -> None:
    words = "/9j/ is how a JPEG begins; " + "a" * 500 + " data:text/plain,hello iVBORw0KGgo"
    assert read(text(words)).text == words


def test_files_in_structure_and_resources_are_taken_out() -> None:
    uri = f"data:image/png;base64,{PNG}"
    outcome = read(
        {"type": "resource", "resource": {"uri": "page://1", "text": f"<img src='{uri}'>"}},
        {"type": "resource_link", "uri": uri, "name": "picture"},
        structuredContent={"image": uri, "more": [JPEG]},
    )
    assert len(outcome.artifacts) == 2


# --- resources and links ------------------------------------------------------------------------------------------


def test_an_embedded_text_is_given_with_its_address() -> None:
    resource = {"uri": "file:///r/readme.md", "mimeType": "text/markdown", "text": "# Title"}
    outcome = read(text("successfully downloaded"), {"type": "resource", "resource": resource})
    assert outcome.text == "successfully downloaded\nfile:///r/readme.md:\n# Title"
    assert outcome.content[1] == {
        "type": "resource", "uri": "file:///r/readme.md", "media_type": "text/markdown", "text": "# Title",
    }  # fmt: skip


def test_an_embedded_file_is_a_file_with_its_name() -> None:
    outcome = read(blob("https://files.example/report.pdf", "JVBERi0xLjQK", "application/pdf"))
    assert (outcome.artifacts[0].name, outcome.artifacts[0].media_type) == ("report.pdf", "application/pdf")
    assert outcome.text == (
        "[file “report.pdf” (application/pdf) was given to the user, from https://files.example/report.pdf]"
    )


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///../../etc/cron.d/x", "x"),
        ("https://x.example/a%2f..%2fb", "b"),
        ("https://x.example/a%252f..%252fc", "c"),
        ("https://x.example/a\r\nSet-Cookie: k=v.txt", "a Set-Cookie_ k=v.txt"),
        ("https://x.example/a.txt?token=1#part", "a.txt"),
        ("C:\\windows\\system32\\drivers.dll", "drivers.dll"),
        ("https://x.example/\u202egpj.exe", "gpj.exe"),
        ("https://x.example/..", "file-1.txt"),
        ("", "file-1.txt"),
        (None, "file-1.txt"),
        ("https://x.example/bericht%20ä.txt", "bericht ä.txt"),
        ("file:///" + "n" * 400, "n" * 150),
        ("file:///" + "n" * 400 + ".txt", "n" * 146 + ".txt"),
        ("https://x.example/a%00b.txt", "a\ufffdb.txt"),
        ("file:///.bashrc", "bashrc"),
    ],
)
def test_a_name_is_the_last_part_of_the_address_and_harmless(uri: Any, name: str) -> None:
    (artifact,) = read(blob(uri)).artifacts
    assert artifact.name == name


def test_an_office_file_keeps_its_declared_type_and_others_do_not() -> None:
    archive = base64.b64encode(b"PK\x03\x04" + bytes(30)).decode()
    docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert read(blob("a.docx", archive, docx)).artifacts[0].media_type == docx
    assert read(blob("a.png", archive, "image/png")).artifacts[0].media_type == "application/zip"
    assert read(blob("a", "aGk=", "text/html; charset=utf-8")).artifacts[0].media_type == "text/html"
    assert read(blob("a", "aGk=", "x\r\ny: z")).artifacts[0].media_type == "application/octet-stream"


def test_links_are_given_with_their_titles() -> None:
    link = {"type": "resource_link", "uri": "https://example.org/1", "name": "one", "title": "The one"}
    outcome = read(link, {"type": "resource_link", "uri": "https://example.org/2", "description": "Second"})
    assert outcome.text == "The one (https://example.org/1)\nhttps://example.org/2: Second"
    assert outcome.content[0] == {"type": "link", "uri": "https://example.org/1", "title": "The one"}


# --- size ---------------------------------------------------------------------------------------------------------


def test_a_huge_text_is_cut_and_the_whole_is_a_file() -> None:
    outcome = read(text("x" * 5_000_000))
    assert len(outcome.text) <= LIMIT
    assert "5,000,000 characters" in outcome.text
    assert outcome.artifacts[0].data == b"x" * 5_000_000
    name = outcome.artifacts[0].name
    assert outcome.text.endswith(
        f"The user has the whole as “{name}”; read_result with result “{name}” and offset {outcome.text.index('[') - 1}"
        " reads on. Or ask for less at a time.]"
    )
    assert len(json.dumps(outcome.content)) < LIMIT + 1000


def test_many_large_parts_are_bounded_together() -> None:
    parts = [text("y" * 20_000)] * 20
    outcome = read(*parts, structuredContent={"rows": ["z" * 100_000]})
    assert len(json.dumps(outcome.content)) < LIMIT + 2000
    assert len(outcome.artifacts[0].data) > 400_000


def test_a_text_at_the_limit_is_whole() -> None:
    assert read(text("x" * LIMIT)).text == "x" * LIMIT
    assert read(text("x" * 100), limit=50).artifacts


KINDS = ["text", "image", "audio", "resource", "resource_link"]
KEYS = ["type", "text", "data", "mimeType", "resource", "uri", "blob", "name", "title"]
WORDS = st.one_of(st.text(max_size=20), st.sampled_from([*KINDS, PNG, f"data:image/png;base64,{PNG}"]))
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner)),
    max_leaves=15,
)
BLOCKS = st.fixed_dictionaries({"type": st.sampled_from(KINDS)}, optional=dict.fromkeys(KEYS[1:], ANY))
CONTENT = st.one_of(ANY, st.lists(BLOCKS, max_size=4))


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional={"content": CONTENT, "structuredContent": ANY, "isError": ANY}))
def test_no_answer_of_any_shape_does_harm(raw: Mapping[str, Any]) -> None:
    assert_sound(normalise(raw, images=True, output_schema=None, limit=LIMIT))
