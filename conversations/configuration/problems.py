"""What is wrong with a configuration file, and where: every problem is told, none of them holds a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chatui.errors import ChatUIError

Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    """`("servers", "clock", "args", 0)` as a person writes it: `servers.clock.args[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct. `path` is empty when the file as a whole is meant."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class ConfigurationError(ChatUIError):
    """The file cannot be applied; nothing was changed."""

    code = "invalid_configuration"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(public_message="\n".join(str(problem) for problem in problems))
