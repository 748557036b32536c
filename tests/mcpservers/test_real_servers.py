"""Servers that other people wrote, and our own, through every transport that they speak."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from demo.mcp_server import calculate
from mcpservers.connection import Connection
from mcpservers.errors import ServerUnavailableError
from mcpservers.transports import ConnectionTarget
from tests.fakes.mcp_installed import npm_server, pypi_server
from tests.fakes.mcp_targets import managed, target

REPOSITORY = Path(__file__).resolve().parents[2]
EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"


@pytest.fixture(autouse=True)
def _logs(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path


def local(command: Sequence[str], *more: str, env: dict[str, str] | None = None) -> ConnectionTarget:
    made: ConnectionTarget = target(
        transport="stdio",
        command=command[0],
        args=[*command[1:], *more],
        env=env or {},
        timeout=30,
        connect_timeout=60,
    )
    return made


@asynccontextmanager
async def connected(where: ConnectionTarget) -> AsyncIterator[Connection]:
    async with managed() as manager, manager.borrow(where) as connection:
        yield connection


@asynccontextmanager
async def serving(command: Sequence[str], *, port: int, **env: str) -> AsyncIterator[str]:
    """Run a server that listens on `port`; its base address."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=REPOSITORY,
        env=dict(os.environ) | {"PORT": str(port)} | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                assert process.returncode is None
                await asyncio.sleep(0.05)  # nothing tells when somebody else's process listens
            else:
                writer.close()
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        number: int = unused.getsockname()[1]
    return number


async def tool_names(connection: Connection) -> set[str]:
    return {tool["name"] for tool in (await connection.request_raw("tools/list"))["tools"]}


async def call(connection: Connection, name: str, **arguments: Any) -> Any:
    return await connection.request_raw("tools/call", {"name": name, "arguments": arguments})


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


# --- Our own --------------------------------------------------------------------------------------------------------


async def check_demo(connection: Connection) -> None:
    assert connection.server_info["title"] == "Demo tools"
    assert "café" in connection.instructions
    expected = {"current_time", "calculate", "search_notes", "add_note", "brew_coffee", "draw_chart"}
    assert await tool_names(connection) == expected
    moment = (await call(connection, "current_time", timezone="Asia/Shanghai"))["structuredContent"]
    assert (moment["timezone"], moment["utc_offset"]) == ("Asia/Shanghai", "+08:00")
    assert (await call(connection, "calculate", expression="(1 + 2) * 3 ^ 2 / sqrt(16)"))["structuredContent"][
        "result"
    ] == 6.75
    notes = (await call(connection, "search_notes", query="coffee beans"))["structuredContent"]["notes"]
    assert notes[0]["title"] == "Coffee supplier"
    picture = (await call(connection, "draw_chart", values=[1, 2.5], labels=["a"], title="Cups"))["content"]
    assert base64.b64decode(picture[0]["data"]).startswith(b"\x89PNG")
    assert picture[1]["text"] == "Cups. a: 1, 2: 2.5"
    mistake = await call(connection, "current_time", timezone="Moon/Base")
    assert (mistake["isError"], "There is no time zone “Moon/Base”" in text(mistake)) == (True, True)
    added = (await call(connection, "add_note", title="Milk", text="Oat"))["structuredContent"]
    assert (await call(connection, "search_notes", query="oat"))["structuredContent"]["notes"] == [added]


async def test_the_demo_server_over_stdio() -> None:
    async with connected(local(["python", "-m", "demo.mcp_server"])) as connection:
        assert connection.transport == "stdio"
        await check_demo(connection)


async def test_the_demo_server_over_http(port: int) -> None:
    command = [sys.executable, "-m", "demo.mcp_server", "--http", str(port)]
    async with serving(command, port=port) as address, connected(target(f"{address}/mcp")) as connection:
        assert connection.transport == "streamable-http"
        await check_demo(connection)


async def test_the_demo_servers_annotations_say_which_tool_changes_something() -> None:
    async with connected(local(["python", "-m", "demo.mcp_server"])) as connection:
        tools = (await connection.request_raw("tools/list"))["tools"]
        assert {tool["name"] for tool in tools if not tool["annotations"]["readOnlyHint"]} == {"add_note"}
        assert all(tool["title"] and tool["description"] for tool in tools)


@pytest.mark.parametrize(
    "expression",
    [
        "1/0",
        "2**99999",
        "9**9**9",
        "__import__('os')",
        "(1).__class__",
        "1+" * 150 + "1",
        "sqrt(-1)",
        "'a'*9",
        "x",
        "",
        "log(0)",
        "(-8)**0.5",
    ],
)
def test_the_demo_calculator_refuses_what_is_no_arithmetic(expression: str) -> None:
    with pytest.raises(ToolError) as caught:
        calculate(expression)
    assert str(caught.value).endswith(".")


async def test_the_demo_servers_slow_tool_reports_and_can_be_stopped() -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def progressed(*progress: Any) -> None:
        await told.put(progress)

    async with connected(local(["python", "-m", "demo.mcp_server"])) as connection:
        parameters = {"name": "brew_coffee", "arguments": {"cups": 60, "seconds_per_cup": 0.01}}
        slow = asyncio.create_task(
            connection.request("tools/call", parameters, timeout=60, limit=60, on_progress=progressed)
        )
        assert await told.get() == (0, 60, "Brewing cup 1 of 60")
        assert "60 cups are ready" in text(await slow)
        parameters["arguments"] = {"cups": 60, "seconds_per_cup": 30}
        stopped = asyncio.create_task(connection.request("tools/call", parameters, timeout=60, on_progress=progressed))
        while await told.get() != (0, 60, "Brewing cup 1 of 60"):
            pass
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert (await call(connection, "calculate", expression="1+1"))["structuredContent"]["result"] == 2


# --- From npm: the session era --------------------------------------------------------------------------------------


async def check_everything(connection: Connection) -> None:
    assert connection.era["mode"] == "legacy"
    assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= await tool_names(connection)
    assert text(await call(connection, "echo", message="Grüße 林")) == "Echo: Grüße 林"
    assert "5" in text(await call(connection, "get-sum", a=2, b=3))
    image = next(part for part in (await call(connection, "get-tiny-image"))["content"] if part["type"] == "image")
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
    weather = await call(connection, "get-structured-content", location="New York")
    assert weather["structuredContent"]["temperature"]
    told: list[float] = []

    async def progressed(progress: float, *_: object) -> None:
        told.append(progress)

    parameters = {"name": "trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 4}}
    await connection.request("tools/call", parameters, timeout=60, on_progress=progressed)
    assert told[:4] == [1, 2, 3, 4]
    wrong = await call(connection, "get-sum", a="two")
    assert wrong["isError"]


@pytest.mark.node
@pytest.mark.deadline(180)  # programs of other people are installed and started
async def test_the_everything_server_over_stdio() -> None:
    async with connected(local(npm_server(EVERYTHING), "stdio")) as connection:
        await check_everything(connection)


@pytest.mark.node
@pytest.mark.deadline(180)  # programs of other people are installed and started
@pytest.mark.parametrize(
    ("kind", "path", "transport"), [("streamableHttp", "/mcp", "streamable-http"), ("sse", "/sse", "sse")]
)
async def test_the_everything_server_over_http(port: int, kind: str, path: str, transport: str) -> None:
    async with (
        serving([*npm_server(EVERYTHING), kind], port=port) as address,
        connected(target(address + path, timeout=30, connect_timeout=30)) as connection,
    ):
        assert connection.transport == transport
        await check_everything(connection)


@pytest.mark.node
@pytest.mark.deadline(180)  # programs of other people are installed and started
async def test_the_filesystem_server_keeps_to_its_directory(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("found")
    async with connected(local(npm_server(FILESYSTEM), str(tmp_path))) as connection:
        assert text(await call(connection, "read_text_file", path=str(tmp_path / "note.txt"))) == "found"
        await call(connection, "write_file", path=str(tmp_path / "new.txt"), content="written")
        outside = await call(connection, "read_text_file", path="/etc/hostname")
    assert (tmp_path / "new.txt").read_text() == "written"
    assert outside["isError"]


@pytest.mark.node
@pytest.mark.deadline(180)  # programs of other people are installed and started
async def test_a_server_that_refuses_to_start_says_why_to_the_admin() -> None:
    with pytest.raises(ServerUnavailableError) as caught:
        async with connected(local(npm_server(FILESYSTEM), "/no/such/directory")):
            pass
    assert "exit code" in caught.value.public_message
    assert "/no/such/directory" in str(caught.value)


# --- From PyPI: the stateless era -----------------------------------------------------------------------------------


@pytest.mark.deadline(240)  # programs of other people are installed and started
async def test_the_time_server() -> None:
    command, env = pypi_server("mcp_server_time")
    async with connected(local(command, "--local-timezone=UTC", env=env)) as connection:
        assert connection.era["mode"] == "modern"
        assert await tool_names(connection) == {"get_current_time", "convert_time"}
        converted = await call(
            connection, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "21:00" in text(converted)


@pytest.mark.deadline(240)  # programs of other people are installed and started
async def test_the_git_server(tmp_path: Path) -> None:
    environment = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c"}
    identity = environment | {name.replace("AUTHOR", "COMMITTER"): value for name, value in environment.items()}
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first commit"]):
        git = await asyncio.create_subprocess_exec("git", *arguments, cwd=tmp_path, env=dict(os.environ) | identity)
        assert await git.wait() == 0
    command, env = pypi_server("mcp_server_git")
    async with connected(local(command, "--repository", str(tmp_path), env=env)) as connection:
        assert "git_log" in await tool_names(connection)
        assert "the first commit" in text(await call(connection, "git_log", repo_path=str(tmp_path)))
