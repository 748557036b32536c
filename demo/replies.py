"""What the scripted demo model says: a pure function of the conversation and of the tools that are offered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Fault = Literal["", "fail", "stall", "cut"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool by the name under which it is offered, with its arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One round of the model. With `fault` it fails instead of, or in the middle of, saying `text`."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    fault: Fault = ""


STARTERS = (
    "What time is it in Shanghai and in New York?",
    "Add a note: buy oat milk on Friday",
    "What is in my own notes?",
    "Brew five cups of coffee",
    "What do the notes say about the espresso machine?",
    "Draw a chart of the week's coffee sales",
    "How much is (17 * 23 + 2^10) / 3?",
)
ZONES = {
    "berlin": "Europe/Berlin",
    "london": "Europe/London",
    "paris": "Europe/Paris",
    "new york": "America/New_York",
    "san francisco": "America/Los_Angeles",
    "são paulo": "America/Sao_Paulo",
    "tokyo": "Asia/Tokyo",
    "shanghai": "Asia/Shanghai",
    "beijing": "Asia/Shanghai",
    "delhi": "Asia/Kolkata",
    "sydney": "Australia/Sydney",
    "上海": "Asia/Shanghai",
    "北京": "Asia/Shanghai",
    "纽约": "America/New_York",
    "东京": "Asia/Tokyo",
    "柏林": "Europe/Berlin",
}
SALES = {"Mon": 84.0, "Tue": 91.0, "Wed": 78.0, "Thu": 102.0, "Fri": 137.0, "Sat": 120.0}
_EXPRESSION = re.compile(r"[\d(][\d\s.+\-*/%^()×÷]*[+\-*/%^×÷][\d\s.+\-*/%^()×÷]*[\d)]")
_CJK = re.compile(r"[\u3400-\u9fff]")

GREETING = """\
I am the **scripted demo model** of chatui: no artificial intelligence, just a few prepared answers, so that you can \
see everything without a key. My tools are real: they run on a real MCP server.

Ask me for one of these:

| Question | What you will see |
|---|---|
| What time is it in Shanghai and in New York? | two tool calls at once |
| How much is (17 * 23 + 2^10) / 3? | a calculation |
| What do the notes say about the espresso machine? | a search, and an answer from what it found |
| Brew five cups of coffee | a slow tool with progress; stop it if you like |
| Draw a chart of the week's coffee sales | a picture |
| Add a note: buy oat milk on Friday | a tool that asks you first |
| What is in my own notes? | a tool that wants you to sign in, with an account that is made up |
| Write in my own notes: call the dentist | the same one asking for a wider permission |
| Show me Markdown | lists, a table, code |
| Tell me a long story | time to press *Stop* |
| fail · stall · cut | how trouble looks |

To use a real model, set `OPENAI_API_KEY` (and `OPENAI_BASE_URL` for another endpoint) and start the demo again."""

GREETING_ZH = """\
我是 chatui 的**脚本演示模型**：没有人工智能，只有几段准备好的回答，\
让您无需密钥也能看到全部功能。我的工具是真的，运行在真实的 MCP 服务器上。

可以试试：

- 上海和纽约现在几点？
- How much is (17 * 23 + 2^10) / 3?
- Brew five cups of coffee
- Add a note: buy oat milk on Friday"""

MARKDOWN = '''\
Here is some of what an answer can hold.

1. **Bold**, *italic*, ~~struck~~ and `inline code`
2. A [link](https://modelcontextprotocol.io)
   - and a nested item

> A quotation, to rest the eye.

| Cup | Millilitres | Caffeine |
|:--|--:|--:|
| Espresso | 30 | 63 mg |
| Filter | 240 | 95 mg |

```python
def brew(cups: int) -> list[str]:
    """One line a cup."""
    return [f"Cup {number} is ready." for number in range(1, cups + 1)]
```
'''

_STORY = (
    "Every morning before eight, Mira unlocked the café and listened to the machine wake up.",
    "It sighed, it clicked, and on good days it did not show error E4.",
    "Jonas came later, as he closed in the evening, and brought the bread.",
    "They kept notes on everything: the beans, the rota, the password for guests.",
    "Nobody could say who had begun with that, only that it helped.",
)


def reply(messages: Sequence[Mapping[str, Any]], tools: Sequence[str] = ()) -> Reply:
    """The next round for `messages` (Chat Completions) with the offered tool names `tools`."""
    turn = _this_turn(messages)
    question = _text(turn[0]) if turn else ""
    results = [message for message in turn if message.get("role") == "tool"]
    if results:
        return Reply(text=_answer(turn, results))
    fault = _fault(question)
    if fault:
        return Reply(text="I was about to say something important, namely that", fault=fault)
    return _begin(question, {name.rpartition("__")[2]: name for name in tools})


def _this_turn(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """From the last question on."""
    asked = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    return messages[asked[-1] :] if asked else ()


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict)).strip()
    return str(content or "").strip()


def _fault(question: str) -> Fault:
    words = re.findall(r"\w+", question.lower())
    found = next((word for word in words if word in ("fail", "stall", "cut")), "")
    return found if len(words) <= 3 else ""  # type: ignore[return-value]  # one of the literals, by the line above


# --- The first round --------------------------------------------------------------------------------------------------


def _begin(question: str, offered: Mapping[str, str]) -> Reply:
    lower = question.lower()
    wanted = _wanted(question, lower)
    if wanted is None:
        return _talk(question, lower)
    reasoning, preamble, calls = wanted
    missing = sorted({tool for tool, _ in calls if tool not in offered})
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        return Reply(text=f"I would use {names} for this, but that tool is not offered to me in this chat.")
    made = tuple(Call(offered[tool], arguments) for tool, arguments in calls)
    return Reply(text=preamble, reasoning=reasoning, calls=made)


def _wanted(question: str, lower: str) -> tuple[str, str, list[tuple[str, dict[str, Any]]]] | None:
    """(reasoning, preamble, [(tool, arguments)]) for a question that needs tools."""
    named = sorted((lower.find(city), zone) for city, zone in ZONES.items() if city in lower)
    zones = list(dict.fromkeys(zone for _, zone in named))
    expression = _EXPRESSION.search(question)
    if zones and not lower.startswith("add"):
        thought = (
            f"The user wants the time in {len(zones)} place(s). The calls do not depend on each other: all at once."
        )
        return thought, "Let me look at the clocks.", [("current_time", {"timezone": zone}) for zone in zones]
    if re.search(r"\bmy (own )?notes\b", lower):
        return _own_notes(question, lower)
    if lower.startswith(("add a note", "note:", "remember")):
        text = question.partition(":")[2].strip() or question
        return "Writing a note changes something, so the user may be asked first.", "", [_note(text)]
    if expression is not None:
        text = expression.group().strip().replace("×", "*").replace("÷", "/")
        return "Better calculated than guessed.", "", [("calculate", {"expression": text})]
    if "brew" in lower or "coffee for" in lower or "cups" in lower:
        return "", "Brewing. You can watch, or stop me.", [("brew_coffee", {"cups": 5, "seconds_per_cup": 1})]
    if "chart" in lower or "draw" in lower or "picture" in lower:
        return "", "", [("draw_chart", {"values": [*SALES.values()], "labels": [*SALES], "title": "Cups sold"})]
    if "note" in lower:
        query = re.sub(r"\b(what|do|does|the|notes?|say|about|our|is|in|find|search|for|a)\b|[^\w\s-]", " ", lower)
        return "The notes will know.", "", [("search_notes", {"query": " ".join(query.split())})]
    if re.search(r"\btime\b|几点", lower):
        return "", "", [("current_time", {"timezone": "UTC"})]
    return None


def _own_notes(question: str, lower: str) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    text = question.partition(":")[2].strip()
    if text and re.match(r"write|add|put|save", lower):
        return "Their own notes are behind a sign-in, and writing needs a permission of its own.", "", [_own_note(text)]
    return "Their own notes are behind a sign-in.", "", [("list_my_notes", {})]


def _own_note(text: str) -> tuple[str, dict[str, Any]]:
    return "add_my_note", {"text": text}


def _note(text: str) -> tuple[str, dict[str, Any]]:
    return "add_note", {"title": text[:60], "text": text}


def _talk(question: str, lower: str) -> Reply:
    if "markdown" in lower or "table" in lower or "code" in lower:
        return Reply(text=MARKDOWN)
    if "story" in lower or "long" in lower:
        paragraphs = [" ".join(_STORY[index % 5 :] + _STORY[: index % 5]) for index in range(12)]
        return Reply(text="\n\n".join(paragraphs), reasoning="A story, then. Let it be about the café.")
    return Reply(text=GREETING_ZH if _CJK.search(question) else GREETING)


# --- The answer from results ------------------------------------------------------------------------------------------


def _answer(turn: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> str:
    """What the tools brought, in words; a result that is no success is told as what it is."""
    names = {
        call["id"]: call["function"]["name"].rpartition("__")[2]
        for message in turn
        for call in message.get("tool_calls") or ()
    }
    pairs = [(names.get(str(result.get("tool_call_id")), ""), _text(result)) for result in results]
    times = [value for name, text in pairs if name == "current_time" and (value := _object(text))]
    if times and len(times) == len(pairs):
        return _clocks(times)
    return "\n\n".join(_told(name, text) for name, text in pairs)


def _clocks(times: Sequence[Mapping[str, Any]]) -> str:
    rows = [f"| {_city(time)} | {str(time.get('iso', ''))[11:16]} | {time.get('weekday', '')} |" for time in times]
    return "\n".join(["| Place | Time | Day |", "|---|---|---|", *rows])


def _city(time: Mapping[str, Any]) -> str:
    return str(time.get("timezone", "")).rpartition("/")[2].replace("_", " ")


def _told(name: str, text: str) -> str:
    value = _object(text)
    match name:
        case "calculate" if value and "result" in value:
            return f"`{value.get('expression')}` = **{value['result']}**"
        case "search_notes" if value and "notes" in value:
            return "\n\n".join(_quoted(value["notes"])) if value["notes"] else "There is no note about that."
        case "add_note" if value and "id" in value:
            return f"Done: note {value['id']}, “{value.get('title')}”."
        case "list_my_notes" | "add_my_note" if value and "notes" in value:
            rows = "\n".join(f"- {note}" for note in value["notes"])
            return f"These are the notes of **{value.get('owner')}**:\n\n{rows}"
        case "brew_coffee" if "ready" in text:
            return f"☕ {text}"
        case "draw_chart" if "Cups sold" in text:
            return "Here is the chart. Friday was the best day."
    return f"The tool did not do it. It said:\n\n> {text[:600]}"


def _quoted(notes: Any) -> Iterator[str]:
    yield "According to the notes:"
    for note in notes[:3]:
        yield f"> **{note.get('title')}** – {note.get('text')}"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
