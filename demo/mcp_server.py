"""A small MCP server: a clock, a calculator, notes, something slow, a picture, and one tool that changes something.

`python -m demo.mcp_server` speaks over stdio, `python -m demo.mcp_server --http PORT` over streamable HTTP at `/mcp`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import math
import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont
from pydantic import BaseModel, Field

INSTRUCTIONS = """\
The notes are those of a small team that runs a café. Search them before you answer a question about the café.
Times are given in the time zone that you ask for. Nothing here reaches the network."""
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

server = MCPServer("demo", title="Demo tools", version="1.0", instructions=INSTRUCTIONS, log_level="WARNING")


# --- Clock --------------------------------------------------------------------------------------------------------


class Moment(BaseModel):
    """A moment in a time zone."""

    iso: str
    timezone: str
    weekday: str
    utc_offset: str


@server.tool(title="Current time", annotations=READS)
def current_time(
    timezone: Annotated[str, Field(description="IANA name, such as Europe/Berlin or Asia/Shanghai")] = "UTC",
) -> Moment:
    """Tell the current date and time in a time zone."""
    try:
        now = datetime.now(ZoneInfo(timezone))
    except (KeyError, ValueError, OSError):
        raise ToolError(f"There is no time zone “{timezone}”. Use an IANA name such as Europe/Berlin.") from None
    offset = now.strftime("%z")
    return Moment(
        iso=now.isoformat(timespec="seconds"),
        timezone=timezone,
        weekday=now.strftime("%A"),
        utc_offset=f"{offset[:3]}:{offset[3:]}",
    )


# --- Calculator ---------------------------------------------------------------------------------------------------

Number = int | float
_LONGEST_EXPRESSION = 200
_MOST_BITS = 4096  # of a power or a product: beyond it a short expression could run for ever
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "floor": math.floor,
    "log": math.log,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS: dict[str, Number] = {"e": math.e, "pi": math.pi, "tau": math.tau}


class Calculation(BaseModel):
    """An expression and its value."""

    expression: str
    result: float | int


@server.tool(title="Calculator", annotations=READS)
def calculate(
    expression: Annotated[str, Field(description="Such as (1 + 2) * 3 ** 2 / sqrt(16)", max_length=500)],
) -> Calculation:
    """Calculate an arithmetic expression: + - * / // % **, parentheses, sqrt, log, sin, round, min, max, pi, e …"""
    if len(expression) > _LONGEST_EXPRESSION:
        raise ToolError(f"The expression is longer than {_LONGEST_EXPRESSION} characters.")
    try:
        value = _value(ast.parse(expression.strip().replace("^", "**"), mode="eval").body)
    except ZeroDivisionError:
        raise ToolError("That divides by zero.") from None
    except (SyntaxError, ArithmeticError, TypeError, ValueError, RecursionError):
        raise ToolError("That is not an expression that this calculator understands.") from None
    return Calculation(expression=expression, result=value)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(op, _value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _real(_FUNCTIONS[name](*[_value(argument) for argument in args]))
    raise ToolError(f"“{ast.unparse(node)}” is not something that this calculator understands.")


def _bounded(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right)
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
    else:
        bits = 0
    if bits > _MOST_BITS:
        raise ToolError("The result is too large.")
    return _real(_BINARY[type(op)](left, right))


def _real(value: Number | complex) -> Number:
    if isinstance(value, complex) or not math.isfinite(value):
        raise ToolError("The result is not a finite real number.")
    return value


# --- Notes --------------------------------------------------------------------------------------------------------


class Note(BaseModel):
    """A note. `id` counts from 1."""

    id: int
    title: str
    text: str


class Notes(BaseModel):
    """Notes that were found, the best match first."""

    notes: list[Note]


NOTES: list[Note] = [
    Note(
        id=1,
        title="Opening hours",
        text="Monday to Friday 8:00–18:00, Saturday 9:00–16:00. Closed on Sundays and in the first week of August.",
    ),
    Note(
        id=2,
        title="Coffee supplier",
        text="Beans come from Rösterei Nord every Tuesday. Order by Friday noon. Contact: Ines, extension 41.",
    ),
    Note(
        id=3,
        title="Espresso machine",
        text="Descale every six weeks, last done on the 3rd. If error E4 shows, empty the drip tray and restart it.",
    ),
    Note(
        id=4,
        title="Summer menu ideas",
        text="Cold brew tonic, lemon and basil cake, a gluten-free brownie. Taste them with the team on Thursday.",
    ),
    Note(
        id=5,
        title="Staff rota",
        text="Mira opens on weekdays, Jonas closes. Saturdays alternate. Swap shifts in the rota, not by message.",
    ),
    Note(
        id=6,
        title="Wi-Fi for guests",
        text="The network is called Café-Gast. The password changes on the first of each month, see the board.",
    ),
]


@server.tool(title="Search notes", annotations=READS)
def search_notes(
    query: Annotated[str, Field(description="Words to look for; empty lists every note")] = "",
    limit: Annotated[int, Field(ge=1, le=20)] = 5,
) -> Notes:
    """Search the café's notes by words in title and text."""
    words = query.casefold().split()
    scored = [(sum(_count(word, note) for word in words), note) for note in NOTES]
    found = [note for score, note in sorted(scored, key=lambda pair: -pair[0]) if score or not words]
    return Notes(notes=found[:limit])


def _count(word: str, note: Note) -> int:
    return 3 * note.title.casefold().count(word) + note.text.casefold().count(word)


@server.tool(
    title="Add a note",
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
    ),
)
def add_note(
    title: Annotated[str, Field(min_length=1, max_length=200)],
    text: Annotated[str, Field(min_length=1, max_length=10_000)],
) -> Note:
    """Write a new note. It is kept in memory, until the server stops."""
    note = Note(id=NOTES[-1].id + 1, title=title, text=text)
    NOTES.append(note)
    del NOTES[6:-100]  # a demonstration does not grow for ever
    return note


# --- Something slow, and a picture --------------------------------------------------------------------------------


@server.tool(title="Brew coffee (slow)", annotations=READS, structured_output=False)
async def brew_coffee(
    context: Context,
    cups: Annotated[int, Field(description="Each cup is one step", ge=1, le=60)] = 5,
    seconds_per_cup: Annotated[float, Field(gt=0, le=30)] = 1.0,
) -> str:
    """Brew some cups of coffee, slowly, reporting progress after each. It can be stopped at any time."""
    began = datetime.now(UTC)
    for cup in range(1, cups + 1):
        await context.report_progress(cup - 1, cups, f"Brewing cup {cup} of {cups}")
        await asyncio.sleep(seconds_per_cup)
    await context.report_progress(cups, cups, "Done")
    seconds = (datetime.now(UTC) - began).total_seconds()
    return f"{cups} {'cup is' if cups == 1 else 'cups are'} ready after {seconds:.1f} seconds."


_SIZE = (640, 360)
_INK, _PAPER, _RULE = "#1f2933", "#ffffff", "#d5dbe1"
_BARS = ("#2563eb", "#0d9488", "#d97706", "#9333ea", "#dc2626", "#4d7c0f")


@server.tool(title="Draw a bar chart", annotations=READS, structured_output=False)
def draw_chart(
    values: Annotated[list[float], Field(description="One bar each, not negative", min_length=1, max_length=24)],
    labels: Annotated[list[str], Field(description="Under the bars", max_length=24)] = [],  # noqa: B006 # read only
    title: Annotated[str, Field(max_length=80)] = "Chart",
) -> list[Image | str]:
    """Draw a bar chart and return it as a PNG picture."""
    if any(value < 0 or not math.isfinite(value) for value in values):
        raise ToolError("The values must be finite and not negative.")
    summary = ", ".join(f"{_label(labels, at)}: {value:g}" for at, value in enumerate(values))
    return [Image(data=_chart(values, labels, title), format="png"), f"{title}. {summary}"]


def _label(labels: Sequence[str], at: int) -> str:
    return labels[at] if at < len(labels) else str(at + 1)


def _chart(values: Sequence[float], labels: Sequence[str], title: str) -> bytes:
    picture = Picture.new("RGB", _SIZE, _PAPER)
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(16)
    small = ImageFont.load_default(12)
    left, top, right, bottom = 40, 56, _SIZE[0] - 24, _SIZE[1] - 44
    draw.text((left, 20), title, fill=_INK, font=font)
    draw.line((left, bottom, right, bottom), fill=_RULE, width=2)
    width = (right - left) / len(values)
    highest = max(values) or 1.0
    for at, value in enumerate(values):
        x = left + at * width
        y = bottom - (bottom - top) * value / highest
        middle = x + width / 2
        draw.rectangle((x + width * 0.15, y, x + width * 0.85, bottom), fill=_BARS[at % len(_BARS)])
        draw.text((middle, y - 4), f"{value:g}", fill=_INK, font=small, anchor="mb")
        draw.text((middle, bottom + 6), _label(labels, at)[:12], fill=_INK, font=small, anchor="mt")
    data = io.BytesIO()
    picture.save(data, "PNG", optimize=True)
    return data.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the client leaves (stdio) or the process is stopped (HTTP)."""
    parser = argparse.ArgumentParser(description="The demo MCP server.")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on 127.0.0.1:PORT, path /mcp")
    port = parser.parse_args(arguments).http
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
