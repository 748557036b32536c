"""Every reason why linking fails is explained where admins look it up."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)


def reasons() -> set[str]:
    """The first argument of every `LinkError`, and of what makes one."""
    found = set()
    places = (ROOT / "mcpservers" / "oauth", ROOT / "conversations" / "linking")
    for path in sorted(path for place in places for path in place.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in ("LinkError", "_failure") and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
    return found


def test_every_reason_is_in_the_guide_and_no_other() -> None:
    table = (ROOT / "docs" / "how-to" / "link-accounts.md").read_text().partition("| Reason |")[2]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    documented = {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}
    assert len(documented) > 15
    assert reasons() == documented
