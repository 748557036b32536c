"""Schema repair: what endpoints refuse is mended, the server's own schema is never touched, and nothing is fetched."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpservers.schemas import DIALECTS, Quarantined, RepairedSchema, repair, restore_arguments
from tests.mcpservers.accepting import assert_accepted

ALL = sorted(DIALECTS)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def ref(pointer: str) -> dict[str, Any]:
    return {"$ref": pointer}


def mended(schema: Any, dialect: str = "openai") -> RepairedSchema:
    before = copy.deepcopy(schema)
    repaired = repair(schema, dialect)
    assert isinstance(repaired, RepairedSchema), repaired
    assert schema == before, "the server's schema is not changed"
    assert_accepted(repaired.parameters, dialect)
    again = repair(repaired.parameters, dialect)
    assert isinstance(again, RepairedSchema)
    assert again.parameters == repaired.parameters, "repairing twice changes nothing"
    return repaired


def mended_property(schema: Any, dialect: str = "openai", name: str = "x") -> Any:
    return mended(obj(**{name: schema}), dialect).parameters["properties"][name]


STRING, NUMBER = {"type": "string"}, {"type": "number"}
TEAM = {
    "type": "object",
    "$defs": {
        "Query": obj(text=STRING, team={"anyOf": [{"$ref": "#/$defs/Team"}, {"type": "null"}]}),
        "Team": obj(id={"type": "integer"}),
    },
    "properties": {"query": {"$ref": "#/$defs/Query"}},
    "required": ["query"],
}
NODE = obj(value=STRING, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})


# --- references ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL)
def test_local_references_are_written_out(dialect: str) -> None:
    parameters = mended(TEAM, dialect).parameters
    assert "$ref" not in json.dumps(parameters)
    assert "$defs" not in json.dumps(parameters)
    assert '"id"' in json.dumps(parameters["properties"]["query"])


def test_what_a_reference_stands_for_keeps_its_types() -> None:
    query = mended(TEAM).parameters["properties"]["query"]
    assert query["properties"]["text"] == STRING
    assert query["properties"]["team"]["properties"] == {"id": {"type": "integer"}}


def test_a_pointer_into_properties_is_followed() -> None:
    schema = obj(headers={"type": "object"}, actions={"type": "array", "items": {"$ref": "#/properties/headers"}})
    assert mended(schema).parameters["properties"]["actions"]["items"] == {"type": "object", "properties": {}}


def test_pointers_are_decoded() -> None:
    schema = {**obj(x={"$ref": "#/$defs/a~1b%20c~0"}), "$defs": {"a/b c~": STRING}}
    assert mended(schema).parameters["properties"]["x"] == STRING


def test_an_anchor_is_followed() -> None:
    schema = {**obj(x={"$ref": "#team"}), "$defs": {"T": {"$anchor": "team", "type": "integer"}}}
    assert mended(schema).parameters["properties"]["x"] == {"type": "integer"}


def test_the_root_may_be_a_reference() -> None:
    schema = {"$ref": "#/definitions/In", "definitions": {"In": {**obj(q=STRING), "required": ["q"]}}}
    assert mended(schema).parameters == {**obj(q=STRING), "required": ["q"]}


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "reference", ["#/$defs/Nope", "https://example.org/schema.json", "file:///etc/passwd", "other.json#/x", "#nope", 7]
)
def test_a_reference_that_leads_nowhere_stands_for_anything(reference: Any, dialect: str) -> None:
    repaired = mended(obj(x={"$ref": reference}, y=STRING), dialect)
    assert repaired.parameters["properties"].keys() == {"x", "y"}
    assert any("leads nowhere" in note for note in repaired.notes)


def test_words_beside_a_reference_are_kept() -> None:
    schema = {
        **obj(x={"$ref": "#/$defs/T", "description": "Here."}),
        "$defs": {"T": {**STRING, "description": "There."}},
    }
    assert mended(schema).parameters["properties"]["x"] == {**STRING, "description": "Here."}


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "schema",
    [
        {**obj(root={"$ref": "#/$defs/Node"}), "$defs": {"Node": NODE}},
        obj(n={"type": "array", "items": obj(children={"type": "array", "items": ref("#/properties/n/items")})}),
        {**obj(a=ref("#/$defs/A")), "$defs": {"A": obj(b=ref("#/$defs/B")), "B": obj(a=ref("#/$defs/A"))}},
        {**obj(a=ref("#/$defs/A")), "$defs": {"A": ref("#/$defs/A")}},
        {**obj(a=ref("#/$defs/A")), "$defs": {"A": {"anyOf": [ref("#/$defs/A"), STRING]}}},
        obj(self={"$ref": "#"}),
    ],
    ids=["definition", "pointer", "mutual", "itself", "alternative", "root"],
)  # fmt: skip
def test_a_schema_that_contains_itself_is_cut(schema: Any, dialect: str) -> None:
    repaired = mended(schema, dialect)
    assert "$ref" not in json.dumps(repaired.parameters)


@pytest.mark.parametrize("dialect", ALL)
def test_references_that_multiply_are_cut_by_a_budget(dialect: str) -> None:
    laughs = {f"L{i}": obj(**{f"p{j}": {"$ref": f"#/$defs/L{i + 1}"} for j in range(8)}) for i in range(20)}
    schema = {**obj(x={"$ref": "#/$defs/L0"}), "$defs": {**laughs, "L20": STRING}}
    mended(schema, dialect)  # whole, it would never be done


@pytest.mark.parametrize("dialect", ALL)
def test_a_schema_of_any_depth_is_cut(dialect: str) -> None:
    schema: Any = STRING
    for _ in range(150):
        schema = obj(x=schema, y={"anyOf": [{"type": "array", "items": schema}, {"type": "null"}]} if _ < 4 else STRING)
    mended(schema, dialect)


def test_a_schema_that_stays_too_large_is_quarantined() -> None:
    schema = obj(x={"type": "string", "enum": [f"value {i:06}" for i in range(20_000)]})
    assert isinstance(repair(schema), Quarantined)


def test_many_alternatives_cost_little_time() -> None:
    many = {"anyOf": [obj(**{f"p{i}": STRING}) for i in range(400)]}
    started = time.process_time()
    mended(obj(x={"allOf": [many, many]}))
    assert time.process_time() - started < 3


# --- the root -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("schema", [{}, None, {"type": "object"}, {"properties": None}, {"type": ["object", "null"]}])
def test_a_root_that_says_nothing_takes_no_arguments(schema: Any, dialect: str) -> None:
    assert mended(schema, dialect).parameters["properties"] == {}


def test_a_root_without_a_type_is_an_object() -> None:
    assert mended({"properties": {"q": STRING}}).parameters == obj(q=STRING)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["array", "null"]}, {"enum": [1, 2]}, {"items": {}}])
def test_a_root_that_is_no_object_is_quarantined_with_the_reason(schema: Any) -> None:
    repaired = repair(schema)
    assert isinstance(repaired, Quarantined)
    assert "must be an object" in repaired.reason


@pytest.mark.parametrize("schema", [True, False, 7, "x", [], [{}]])
def test_a_root_that_is_no_schema_is_quarantined(schema: Any) -> None:
    assert isinstance(repair(schema), Quarantined)


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("key", ["oneOf", "anyOf"])
def test_alternatives_at_the_root_that_only_require_are_told_in_words(key: str, dialect: str) -> None:
    schema = {**obj(id=STRING, url=STRING), key: [{"required": ["id"]}, {"required": ["url"]}]}
    parameters = mended(schema, dialect).parameters
    assert parameters["properties"].keys() == {"id", "url"}
    assert parameters["description"] == "Give one of these sets: (id) or (url)."


@pytest.mark.parametrize("dialect", ALL)
def test_alternatives_at_the_root_become_one_object(dialect: str) -> None:
    create = {**obj(action={"const": "create"}, name=STRING), "required": ["action", "name"]}
    delete = {**obj(action={"const": "delete"}, id=NUMBER), "required": ["action", "id"]}
    parameters = mended({"type": "object", "oneOf": [create, delete]}, dialect).parameters
    assert parameters["properties"].keys() == {"action", "name", "id"}
    assert parameters["properties"]["action"]["enum"] == ["create", "delete"]
    assert dialect == "openai-strict" or parameters["required"] == ["action"]


@pytest.mark.parametrize("dialect", ALL)
def test_parts_of_all_of_are_merged(dialect: str) -> None:
    parts = [{**obj(a=STRING), "required": ["a"]}, {**obj(b=NUMBER), "additionalProperties": False}]
    parameters = mended({"allOf": parts}, dialect).parameters
    assert parameters["properties"].keys() == {"a", "b"}
    assert dialect == "openai-strict" or parameters["required"] == ["a"]


def test_what_only_a_condition_brings_may_be_given() -> None:
    schema = {
        **obj(kind=STRING),
        "if": obj(kind={"const": "card"}),
        "then": {**obj(number=STRING), "required": ["number"]},
        "else": obj(iban=STRING),
        "dependentSchemas": {"kind": obj(note=STRING)},
        "not": {"required": ["x"]},
        "patternProperties": {"^x-": STRING},
    }
    assert mended(schema).parameters == obj(kind=STRING, number=STRING, iban=STRING, note=STRING)


# --- objects and arrays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "schema",
    [{"type": "object"}, {"type": "object", "additionalProperties": True}, {"type": "object", "properties": []}],
)
def test_an_object_without_properties_is_accepted_inside(schema: Any, dialect: str) -> None:
    mended(obj(opts=schema, list={"type": "array", "items": schema}), dialect)


@pytest.mark.parametrize("dialect", ALL)
def test_every_array_says_what_its_items_are(dialect: str) -> None:
    array = {"type": "array"}
    repaired = mended(obj(tags=array, m=obj(rows={"type": "array", "items": array})), dialect)
    assert json.dumps(repaired.parameters).count('"items"') == 3


@pytest.mark.parametrize("key", ["items", "prefixItems"])
def test_a_tuple_becomes_an_array_of_its_kinds(key: str) -> None:
    assert mended_property({"type": "array", key: [NUMBER, NUMBER]})["items"] == NUMBER
    assert mended_property({"type": "array", key: [NUMBER, STRING]})["items"] == {"anyOf": [NUMBER, STRING]}


def test_a_map_keeps_the_schema_of_its_values_where_the_endpoint_takes_it() -> None:
    schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/V"}}
    parameters = mended({**obj(x=schema), "$defs": {"V": NUMBER}}).parameters
    assert parameters["properties"]["x"] == {"type": "object", "properties": {}, "additionalProperties": NUMBER}


def test_keywords_of_another_type_are_dropped() -> None:
    data = {"type": "string", "properties": {"x": STRING}, "required": ["x"], "items": {}, "minimum": 3}
    assert mended_property(data) == STRING


def test_required_names_are_strings_that_exist_once() -> None:
    schema = {**obj(a=STRING), "required": ["a", "a", 7, None]}
    assert mended(schema).parameters["required"] == ["a"]
    assert "required" not in mended({**obj(a=STRING), "required": "a"}).parameters


def test_a_required_property_that_nobody_described_can_still_be_given() -> None:
    assert mended({**obj(a=STRING), "required": ["b"]}).parameters == {**obj(a=STRING, b={}), "required": ["b"]}


def test_a_property_may_say_of_itself_that_it_is_required() -> None:
    assert mended(obj(a={"type": "string", "required": True}, b={"type": "string", "required": False})).parameters == {
        **obj(a=STRING, b=STRING),
        "required": ["a"],
    }


# --- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL)
def test_lists_of_types_are_accepted(dialect: str) -> None:
    args = {"type": ["array", "null"], "items": {"type": ["object", "null"], "properties": {"v": True}}}
    repaired = mended(obj(args=args, n={"type": ["string", "null"]}, u={"type": ["string", "integer"]}), dialect)
    assert "null" in json.dumps(repaired.parameters), "that a value may be null is kept"


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {}}, "object"),
        ({"items": {}}, "array"),
        ({"pattern": "^a$"}, "string"),
        ({"maximum": 3}, "number"),
        ({"enum": ["a"]}, "string"),
        ({"const": 3}, "integer"),
        ({"enum": [1, 2.5]}, None),
        ({"type": "str"}, "string"),
        ({"type": "INTEGER"}, "integer"),
        ({"type": "float"}, "number"),
        ({"type": ["number", "integer"]}, "number"),
        ({"type": "any"}, None),
        ({"type": 7}, None),
    ],
)
def test_a_missing_type_is_inferred(schema: Any, kind: str | None) -> None:
    assert mended_property(schema).get("type") == kind


@pytest.mark.parametrize("dialect", ALL)
def test_type_and_alternatives_do_not_stand_together(dialect: str) -> None:
    mended(obj(v={"type": "string", "anyOf": [STRING, {"type": "null"}]}), dialect)
    mended(obj(v={"type": ["string", "null"], "oneOf": [{"enum": ["a"]}, {"minLength": 3}, {"type": "null"}]}), dialect)


def test_alternatives_that_contradict_the_type_are_left_out() -> None:
    assert mended_property({"type": "string", "anyOf": [{"type": "integer"}, {"minLength": 2}]}) == {
        **STRING,
        "minLength": 2,
    }
    assert mended_property({"type": "string", "anyOf": [{"type": "integer"}, False]}) == STRING


@pytest.mark.parametrize("dialect", ALL)
def test_a_null_default_goes(dialect: str) -> None:
    ids = {"type": "array", "items": STRING, "default": None}
    repaired = mended(obj(query={"type": "string", "default": None}, ids=ids), dialect)
    assert "default" not in json.dumps(repaired.parameters)
    assert dialect == "openai-strict" or "required" not in repaired.parameters


@pytest.mark.parametrize("default", ["a\u202eb", "a\x1b[31m", ["\u200b"], {"\u2060": 1}])
def test_a_default_that_hides_something_goes(default: Any) -> None:
    assert "default" not in mended_property({"default": default})


def test_a_default_stays_where_it_fits() -> None:
    assert mended_property({"type": "string", "default": "a\r\nb 💡 é"})["default"] == "a\r\nb 💡 é"
    assert mended_property({"type": "integer", "default": 3})["default"] == 3
    assert "default" not in mended_property({"type": "integer", "default": "3"})
    assert "default" not in mended_property({"type": "string", "enum": ["a"], "default": "b"})
    assert "default" not in mended_property({"type": "integer", "default": True})


@pytest.mark.parametrize("dialect", ALL)
def test_null_in_an_enum_never_becomes_a_string(dialect: str) -> None:
    status = {"type": ["string", "null"], "enum": ["todo", "done", None]}
    text = json.dumps(mended(obj(status=status), dialect).parameters)
    assert '"enum": ["todo", "done"]' in text
    assert '""' not in text


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "values",
    [[None], [], "a", [1, 2], [True, False], [1.5, float("nan")], [{"a": 1}], [[1], [2]], ["a", 1, None, True]],
)
def test_enums_of_any_kind_are_accepted(values: Any, dialect: str) -> None:
    mended(obj(x={"enum": values}, y={"type": "string", "enum": values}), dialect)


def test_values_that_an_endpoint_cannot_list_are_told_in_words() -> None:
    assert mended_property({"enum": [1, 2]}, "gemini") == {"type": "integer", "description": "One of 1, 2."}


@pytest.mark.parametrize("dialect", ALL)
def test_boolean_schemas_are_read(dialect: str) -> None:
    cursor = {"anyOf": [{"type": "array", "items": True}, {"type": "null"}]}
    repaired = mended({**obj(extra=True, never=False, cursor=cursor), "required": ["never"]}, dialect)
    assert repaired.parameters["properties"].keys() == {"extra", "cursor"}
    assert any("never" in note for note in repaired.notes)


@pytest.mark.parametrize("dialect", ALL)
def test_parts_that_are_no_schemas_stand_for_anything(dialect: str) -> None:
    mended(obj(a=None, b=7, c="string", d=["string"], e={"type": "array", "items": "string"}), dialect)


# --- keywords -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_the_draft_is_not_sent(draft: str) -> None:
    assert mended({"$schema": draft, "$id": "x", "$comment": "y", **obj(q=STRING)}).parameters == obj(q=STRING)


@pytest.mark.parametrize("dialect", ["llama.cpp", "permissive", "gemini"])
def test_a_pattern_that_a_grammar_refuses_is_told_in_words(dialect: str) -> None:
    key = mended_property({"type": "string", "pattern": "\\S", "description": "The key"}, dialect)
    assert "pattern" not in key
    assert key["description"] == "The key. Pattern: \\S"


def test_a_pattern_that_is_no_regular_expression_is_dropped() -> None:
    assert mended_property({"type": "string", "pattern": "(unclosed"}) == STRING
    assert mended_property({"type": "string", "pattern": "^\\p{L}+$"}) == STRING


def test_draft_4_bounds_become_numbers() -> None:
    bounds = {"minimum": 3, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    assert mended_property({**NUMBER, **bounds}) == {**NUMBER, "exclusiveMinimum": 3, "maximum": 9}


def test_bounds_that_no_number_can_be_are_dropped() -> None:
    assert mended_property({"type": "number", "minimum": float("nan"), "maximum": "9", "multipleOf": 0}) == NUMBER
    assert mended_property({"type": "string", "minLength": -1, "maxLength": 2.5}) == STRING


def test_a_title_speaks_where_there_is_no_description() -> None:
    assert mended_property({"type": "string", "title": "Where to look"}) == {**STRING, "description": "Where to look"}
    assert mended_property({"type": "string", "title": "User Id"}, name="userId") == STRING


def test_hidden_words_are_taken_out_of_descriptions() -> None:
    assert mended_property({"type": "string", "description": "A\u200b name\u202e\U000e0041.\x1b[31m"}) == {
        **STRING,
        "description": "A name.",
    }


# --- property names -----------------------------------------------------------------------------------------------

AWKWARD = ["filter[name]", "$top", "ids[]", "owner.any", "名前", "", "a b", "a.b", "a" * 80, "x\u200by", "é" * 70]


@pytest.mark.parametrize("dialect", ALL)
def test_illegal_names_are_renamed_and_come_back(dialect: str) -> None:
    schema = {**obj(**{name: {**STRING, "description": "d"} for name in AWKWARD}), "required": AWKWARD[:1]}
    repaired = mended(schema, dialect)
    sent = list(repaired.parameters["properties"])
    assert len(set(sent)) == len(AWKWARD)
    assert repaired.parameters["required"][0] == sent[0] != AWKWARD[0]
    arguments = {name: name for name in sent}
    restored = restore_arguments(arguments, repaired.renames, repaired.absent)
    assert restored == dict(zip(AWKWARD, sent, strict=True))


def test_legal_names_keep_theirs_and_are_never_taken_by_a_renamed_one() -> None:
    first = mended(obj(**{"a.b": STRING}))
    (taken,) = first.renames
    repaired = mended(obj(x=obj(**{"a.b": STRING}), **{taken: NUMBER, "a_b": NUMBER}))
    assert repaired.parameters["properties"].keys() == {"x", taken, "a_b"}
    assert taken not in repaired.renames


def test_names_inside_come_back_and_foreign_keys_stay() -> None:
    inner = obj(**{"user.name": STRING})
    repaired = mended(
        obj(list={"type": "array", "items": inner}, any={"anyOf": [inner, STRING]}, free={"type": "object"})
    )
    (sent,) = repaired.renames
    arguments = {"list": [{sent: "a"}, {sent: "b"}], "any": {sent: "c"}, "free": {"user_name": 1, "k": [None]}}
    assert restore_arguments(arguments, repaired.renames, repaired.absent) == {
        "list": [{"user.name": "a"}, {"user.name": "b"}],
        "any": {"user.name": "c"},
        "free": {"user_name": 1, "k": [None]},
    }


def test_a_null_that_stands_for_left_out_is_left_out_again() -> None:
    schema = {
        **obj(a=STRING, b=STRING, c={"type": ["string", "null"]}, d=obj(**{"e.f": STRING})),
        "required": ["a", "d"],
    }
    repaired = mended(schema, "openai-strict")
    sent = next(iter(repaired.renames))
    arguments = {"a": None, "b": None, "c": None, "d": {sent: None}}
    restored = restore_arguments(arguments, repaired.renames, repaired.absent)
    assert restored == {"a": None, "c": None, "d": {}}
    assert arguments["b"] is None, "the model's arguments are not changed"


# --- whatever a server may send -----------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "a.b", "$defs", "x y", "名"])
WORDS = ["object", "string", "null", "array", "#", "#/$defs/A", "#/properties/a", "date-time", "int32"]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.sampled_from(WORDS)
)
KEYS = st.sampled_from(
    ["type", "properties", "items", "required", "anyOf", "oneOf", "allOf", "not", "enum", "const", "default", "$ref",
     "$defs", "additionalProperties", "patternProperties", "prefixItems", "pattern", "format", "minimum", "maxLength",
     "minItems", "exclusiveMaximum", "nullable", "description", "title", "then", "if", "dependentSchemas", "A"]
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(KINDS, st.lists(KINDS, max_size=3)),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2),
            "items": inner,
            "anyOf": several,
            "allOf": several,
            "oneOf": several,
            "enum": st.lists(SCALARS, max_size=3),
            "additionalProperties": inner,
            "default": SCALARS,
            "description": st.text(max_size=5),
            "title": st.text(max_size=5),
            "format": st.sampled_from(["date-time", "uri", "int32"]),
            "pattern": st.sampled_from(["^a$", "(?=x)", "("]),
            "minimum": st.integers(0, 3),
            "maxItems": st.integers(0, 900),
            "$ref": st.sampled_from(["#", "#/properties/a", "#/$defs/A", "http://x.example/s"]),
            "then": inner,
            "nullable": st.booleans(),
        },
    )


SCHEMAS = st.recursive(st.one_of(st.booleans(), SCALARS, st.just({})), schemas, max_leaves=10)
ROOTS = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, schemas(SCHEMAS), min_size=1, max_size=3)},
    optional={
        "allOf": st.lists(SCHEMAS, max_size=2),
        "required": st.lists(NAMES),
        "$defs": st.just({"A": {"items": {}}}),
    },
)


@pytest.mark.parametrize("dialect", ALL)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(schema=st.one_of(JSON, SCHEMAS, ROOTS, ROOTS))
def test_any_json_value_gives_an_accepted_tool_or_a_quarantine_with_a_reason(dialect: str, schema: Any) -> None:
    repaired = repair(schema, dialect)
    if isinstance(repaired, Quarantined):
        assert repaired.reason
    else:
        mended(schema, dialect)
