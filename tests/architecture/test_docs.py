"""What the prose says is what the code does: settings, keys, commands, frames, codes; and links lead somewhere."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.core.management import get_commands
from django.db import models

from agents.models import Agent, ModelEndpoint, ModelProfile
from chatui import errors
from conversations import wire
from conversations.configuration import schema
from conversations.configuration.problems import ConfigurationError, Problem
from conversations.configuration.reading import read_document
from mcpservers.models import MCPServer
from tests.architecture.code import ROOMS, ROOT, nodes, sources

REFERENCE = ROOT / "docs" / "reference"
READERS = {"str", "int", "float", "bool", "list", "url", "email_url", "db_url"}


def settings_read() -> set[str]:
    found = set()
    for node in ast.walk(sources()["chatui/settings.py"]):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in READERS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "env"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            found.add(str(node.args[0].value))
    return found


def names_in_tables(text: str) -> set[str]:
    """Every name in backticks in the first column of a table."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_setting_is_in_the_reference_and_no_other() -> None:
    documented = names_in_tables((REFERENCE / "settings.md").read_text())
    assert len(settings_read()) > 40
    assert documented == settings_read()


def test_every_frame_of_the_client_is_in_the_reference() -> None:
    documented = names_in_tables((REFERENCE / "websocket.md").read_text())
    assert documented >= wire.CLIENT_TYPES


def test_every_frame_of_a_turn_is_in_the_reference_with_its_fields() -> None:
    text = (REFERENCE / "websocket.md").read_text()
    for frame in wire.TurnFrame.__subclasses__():
        row = next(
            line for line in text.splitlines() if line.startswith("|") and f"`{frame.type}`" in line.split("|")[1]
        )
        for field in set(frame.__dataclass_fields__) - {"type"}:
            name = "for" if (frame.type, field) == ("turn.waiting", "reason") else field
            assert f"`{name}`" in row, (frame.type, name)


def error_classes(base: type[errors.ChatUIError]) -> set[type[errors.ChatUIError]]:
    return {base}.union(*(error_classes(child) for child in base.__subclasses__()))


def test_every_error_says_something_to_a_person_and_has_a_code_of_its_own_kind() -> None:
    for error in error_classes(errors.ChatUIError):
        assert error.public_message.endswith((".", "!", "…")), error
        assert re.fullmatch(r"[a-z_]+", error.code), error


# --- The configuration file -------------------------------------------------------------------------------------------


def sections(section: type[schema.Section], path: str) -> Iterator[tuple[str, type[schema.Section]]]:
    """Every section of the file with its path: `*` stands for a name that one chooses, `[]` for an item of a list."""
    yield path, section
    for name, field in section.model_fields.items():
        for kind, step in nested(field.annotation):
            yield from sections(kind, f"{path}.{name}{step}".lstrip("."))


def nested(annotation: Any, step: str = "") -> Iterator[tuple[type[schema.Section], str]]:
    if isinstance(annotation, type) and issubclass(annotation, schema.Section):
        yield annotation, step
    steps: dict[Any, str] = {dict: ".*", list: "[]"}
    inner = steps.get(getattr(annotation, "__origin__", None), step)
    for argument in get_args(annotation):
        yield from nested(argument, inner)


SECTIONS = dict(sections(schema.Configuration, ""))
ROWS: dict[type[schema.Section], type[models.Model]] = {
    schema.Endpoint: ModelEndpoint,
    schema.Model: ModelProfile,
    schema.Server: MCPServer,
    schema.Agent: Agent,
}


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of each row of the tables in `text`, by the name in backticks in the first one."""
    rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `"))
    return {row[0].strip("`"): row for row in rows}


def documented_sections() -> dict[str, str]:
    """Under each heading of the reference: the path that its first line names, and the rest."""
    parts = re.split(r"^#+ .*$", (REFERENCE / "configuration.md").read_text(), flags=re.MULTILINE)[2:]
    found = (re.match(r"\s*`([^`]+)`", part) for part in parts)
    return {match.group(1): match.string for match in found if match}


@pytest.mark.parametrize("path", SECTIONS)
def test_every_key_of_the_configuration_file_is_in_the_reference_and_no_other(path: str) -> None:
    assert rows_of(documented_sections()[path or "(file)"]).keys() == SECTIONS[path].model_fields.keys()


def test_the_reference_has_no_section_that_the_configuration_file_has_not() -> None:
    assert len(SECTIONS) > 12
    assert documented_sections().keys() == {path or "(file)" for path in SECTIONS}


def default_of(section: type[schema.Section], key: str) -> Any:
    """The default that counts: a key without one of its own has that of the model's field."""
    field = section.model_fields[key]
    if field.default is None and section in ROWS:
        try:
            stored = ROWS[section]._meta.get_field(key)
        except FieldDoesNotExist:
            return None
        return stored.get_default() if isinstance(stored, models.Field) else field.default
    return field.default


@pytest.mark.parametrize(("path", "section"), SECTIONS.items())
def test_every_default_in_the_reference_is_the_one_that_counts(path: str, section: type[schema.Section]) -> None:
    for key, row in rows_of(documented_sections()[path or "(file)"]).items():
        told, default = row[2], default_of(section, key)
        if section.model_fields[key].is_required():
            assert told == "required", (path, key)
        elif told != "the slug":
            wanted = (
                "–"
                if default in (None, "")
                else f"`{str(default).lower() if default is True or default is False else default}`"
            )
            assert told == wanted, (path, key)


def test_what_a_key_may_be_is_in_its_row() -> None:
    for path, section in SECTIONS.items():
        rows = rows_of(documented_sections()[path or "(file)"])
        for key, field in section.model_fields.items():
            for choice in choices(field.annotation):
                assert f"`{choice}`" in rows[key][3], (path, key, choice)


def choices(annotation: Any) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, models.TextChoices):
        yield from annotation.values
    for argument in get_args(annotation):
        yield from [argument] if isinstance(argument, str) else choices(argument)


# --- Commands ---------------------------------------------------------------------------------------------------------


def test_every_command_of_ours_is_in_the_reference_and_no_other() -> None:
    ours = {name for name, app in get_commands().items() if str(app).split(".")[0] in ROOMS}
    documented = names_in_tables((REFERENCE / "commands.md").read_text())
    assert ours == {name.split()[1] for name in documented if name.startswith("manage.py ")}


def test_every_target_of_the_makefile_is_in_the_reference_and_no_other() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    documented = names_in_tables((REFERENCE / "commands.md").read_text())
    assert targets == {name.split()[1] for name in documented if name.startswith("make ")}


# --- Errors and checks ------------------------------------------------------------------------------------------------


def codes_of_classes() -> set[str]:
    """What stands as `code` in the classes of errors, whether a test imports them or not."""
    return {
        str(statement.value.value)
        for _, node in nodes(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and "code" in ast.unparse(statement).partition("=")[0].partition(":")[0].split()
        and isinstance(statement.value, ast.Constant)
    }


# Of turns that end without an answer, and of what nobody expected.
CODES_WITHOUT_CLASS = {"interrupted", "content_filter", "internal"}


def test_every_code_of_an_error_is_in_the_reference_and_no_other() -> None:
    assert codes_of_classes() >= {error.code for error in error_classes(errors.ChatUIError)}
    text = (REFERENCE / "errors.md").read_text().partition("## System checks")[0]
    assert names_in_tables(text) == codes_of_classes() | CODES_WITHOUT_CLASS


def test_every_system_check_is_in_the_reference_and_no_other() -> None:
    found = {
        keyword.value.value
        for path, call in nodes(ast.Call)
        for keyword in getattr(call, "keywords", ())
        if path == "chatui/checks.py" and keyword.arg == "id" and isinstance(keyword.value, ast.Constant)
    }
    text = (REFERENCE / "errors.md").read_text().partition("## System checks")[2]
    assert len(found) > 10
    assert names_in_tables(text) == found


# --- Links and places -------------------------------------------------------------------------------------------------

PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_something_in_the_repository(page: Any) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve()
        assert found.exists(), target
        if fragment and found.suffix == ".md":
            assert fragment in anchors(found.read_text()), target


def anchors(text: str) -> set[str]:
    """The fragments of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_setting_of_the_example_exists() -> None:
    named = re.findall(r"^#? ?([A-Z][A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert len(named) > 8
    assert set(named) <= settings_read()


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        todo += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert [str(page.relative_to(ROOT)) for page in PROSE if page not in seen] == []


YAML = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PROSE
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("text", YAML)
def test_every_example_of_configuration_is_valid(text: str) -> None:
    if not text.startswith(("users:", "organizations:")):  # a piece of an organization
        text = f"organizations:\n  acme:\n{textwrap.indent(text, '    ')}"
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "value")
    # A piece may leave out what its page is not about.
    assert [problem for problem in problems_of(text, environment) if problem.message != "is required"] == []


def problems_of(text: str, environment: dict[str, str]) -> Sequence[Problem]:
    try:
        schema.validate(read_document(text, environment).value)
    except ConfigurationError as error:
        return error.problems
    return ()
