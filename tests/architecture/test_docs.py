"""What the reference says is what the code does: settings, frames and error codes are listed, each and no others."""

from __future__ import annotations

import ast
import re

from chatui import errors
from conversations import wire
from tests.architecture.code import ROOT, sources

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
            name = "for" if (frame, field) == (wire.TurnWaiting, "reason") else field
            assert f"`{name}`" in row, (frame.type, name)


def error_classes(base: type[errors.ChatUIError]) -> set[type[errors.ChatUIError]]:
    return {base}.union(*(error_classes(child) for child in base.__subclasses__()))


def test_every_error_says_something_to_a_person_and_has_a_code_of_its_own_kind() -> None:
    for error in error_classes(errors.ChatUIError):
        assert error.public_message.endswith((".", "!", "…")), error
        assert re.fullmatch(r"[a-z_]+", error.code), error
