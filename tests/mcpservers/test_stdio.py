"""Local servers: what they print, how they fail, and that none of their processes is left behind."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpservers.connection import Connection
from mcpservers.connections import ConnectionManager
from mcpservers.errors import ConnectionLostError, RequestFailedError, RequestTimeoutError, ServerUnavailableError
from mcpservers.serverlog import FILE_LIMIT, ServerLog, path_of
from tests.fakes.mcp_targets import managed, stdio, target

CALL = {"name": "environment", "arguments": {}}


@pytest.fixture(autouse=True)
def _logs(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path


@pytest.fixture(autouse=True)
def _slow_machine(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was killed is seen to have ended, however long that takes."""
    settings.MCP = settings.MCP | {"CLOSE_SECONDS": 60}
    monkeypatch.setattr("mcpservers.stdio.KILL_SECONDS", 60)


async def environment(connection: Connection) -> dict[str, str]:
    result = await connection.request_raw("tools/call", CALL)
    found: dict[str, str] = json.loads(result["content"][0]["text"])
    return found


def children() -> list[int]:
    """Processes that this one started and that are alive or not yet waited for."""
    mine = psutil.Process().children(recursive=True)
    return [child.pid for child in mine if "mcp_stdio" in " ".join(_command(child)) or child.status() == "zombie"]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Any:
    yield
    assert children() == []


# --- What it prints -----------------------------------------------------------------------------------------------


async def test_half_a_character_in_an_answer_costs_that_character() -> None:
    async with managed() as manager, manager.borrow(stdio("--half-character")) as connection:
        result = await connection.request_raw("tools/call", CALL)
        assert result["content"][0]["text"] == "hi \ufffd there"


async def test_banners_and_debug_lines_on_standard_output_are_skipped() -> None:
    where = stdio("--banner", "--noise")
    async with managed() as manager, manager.borrow(where) as connection:
        assert "PATH" in await environment(connection)
    log = path_of(where.server_id).read_text()
    assert "not JSON-RPC: Server mode: STDIO" in log
    assert "not JSON-RPC: debug: handling tools/call" in log


@pytest.mark.parametrize("flags", [(), ("--id-last",)])
async def test_an_answer_above_the_limit_is_an_error_and_the_next_call_works(
    settings: Any, flags: tuple[str, ...]
) -> None:
    settings.MCP = settings.MCP | {"MAX_MESSAGE": 2**20}
    async with managed() as manager:
        async with manager.borrow(stdio("--big", str(3 * 2**20), *flags)) as connection:
            with pytest.raises(RequestFailedError, match="larger than 1048576 bytes"):
                await connection.request_raw("tools/call", CALL)
            assert len((await connection.request_raw("tools/list"))["tools"]) == 1
        async with manager.borrow(stdio("--big", str(2**20 - 200), *flags)) as connection:
            result = await connection.request_raw("tools/call", CALL)
            assert len(result["content"][0]["text"]) == 2**20 - 200


async def test_an_answer_that_breaks_json_rpc_is_an_error_of_its_request() -> None:
    async with managed() as manager, manager.borrow(stdio("--malformed")) as connection:
        with pytest.raises(RequestFailedError, match="not valid JSON-RPC"):
            await connection.request_raw("tools/call", CALL)
        assert len((await connection.request_raw("tools/list"))["tools"]) == 1


async def test_standard_error_goes_to_the_servers_log_which_only_we_may_read() -> None:
    where = stdio("--log", "starting with a secret")
    async with managed() as manager, manager.borrow(where) as connection:
        await connection.request_raw("ping")
    path = path_of(where.server_id)
    assert "starting with a secret" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_the_log_of_a_talkative_server_stays_small(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log" / "x.log")
    for number in range(300):
        log.write(f"{number} ".encode() + b"x" * 10_000 + b"\n")
    sizes = [file.stat().st_size for file in (tmp_path / "log").iterdir()]
    assert sum(sizes) < 2 * FILE_LIMIT + 20_000
    assert log.tail(50) == "x" * 50
    assert len(log.tail(10**6)) < 20_000


def test_a_log_that_cannot_be_written_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    log = ServerLog(tmp_path / "file" / "x.log")
    log.write(b"still kept")
    assert log.tail() == "still kept"
    assert "cannot be written" in caplog.text


# --- Environment and command --------------------------------------------------------------------------------------


async def test_a_server_gets_its_own_environment_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "ours")
    monkeypatch.setenv("DATABASE_URL", "ours")
    where = stdio(env={"TOKEN": "{{TOKEN}}"}, variables={"TOKEN": {}}, values={"TOKEN": "theirs"})
    async with managed() as manager, manager.borrow(where) as connection:
        found = await environment(connection)
    assert found["TOKEN"] == "theirs"
    assert set(found) <= {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TOKEN", "LC_CTYPE", "argv"}


async def test_python_is_the_interpreter_that_we_run() -> None:
    where = stdio(command="python")
    async with managed() as manager, manager.borrow(where) as connection:
        assert "argv" in await environment(connection)


async def test_both_eras_are_spoken_over_stdio() -> None:
    async with managed() as manager:
        async with manager.borrow(stdio()) as connection:
            assert (connection.era["mode"], connection.transport) == ("legacy", "stdio")
        async with manager.borrow(stdio("--modern")) as connection:
            assert (connection.era["mode"], connection.transport) == ("modern", "stdio")
            assert connection.server_info == {}
            assert "PATH" in await environment(connection)


async def test_a_server_that_ends_at_the_probe_is_started_again_for_the_older_handshake() -> None:
    async with managed() as manager, manager.borrow(stdio("--handshake-or-die")) as connection:
        assert connection.era["mode"] == "legacy"
        await connection.request_raw("ping")


# --- Failures -----------------------------------------------------------------------------------------------------


async def unavailable(where: Any) -> ServerUnavailableError:
    async with managed() as manager:
        with pytest.raises(ServerUnavailableError) as caught:
            async with manager.borrow(where):
                pass
    return caught.value


async def test_a_missing_command_is_named() -> None:
    error = await unavailable(target(transport="stdio", command="no-such-command"))
    assert "there is no command “no-such-command”" in error.public_message


async def test_a_file_that_is_no_program_is_said_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    error = await unavailable(target(transport="stdio", command=str(tmp_path / "text")))
    assert "cannot be started (EACCES)" in error.public_message


async def test_a_server_that_crashes_at_once_leaves_its_last_words_for_the_admin() -> None:
    where = stdio("--crash", "--log", "no licence for hunter22", env={"TOKEN": "hunter22"})
    error = await unavailable(where)
    assert "the process ended (exit code 3) before it answered" in error.public_message
    assert "licence" not in error.public_message
    assert "no licence for •••" in str(error)


async def test_a_server_that_never_answers_is_given_up_and_killed() -> None:
    error = await unavailable(stdio("--hang-initialize", "--ignore-end", connect_timeout=1))
    assert "did not answer within 1 s" in error.public_message
    assert children() == []


async def test_a_server_that_dies_in_mid_call_loses_that_call_and_is_started_again() -> None:
    where = stdio("--die-in-call")
    async with managed() as manager:
        async with manager.borrow(where) as connection:
            with pytest.raises(ConnectionLostError) as caught:
                await connection.request_raw("tools/call", CALL)
            assert caught.value.sent
            assert not connection.alive
        async with manager.borrow(where) as connection:
            assert len((await connection.request_raw("tools/list"))["tools"]) == 1


async def test_a_server_that_dies_between_calls_is_started_again() -> None:
    where = stdio()
    async with managed() as manager:
        async with manager.borrow(where) as connection:
            await connection.request_raw("ping")
            (pid,) = children()
            os.kill(pid, 9)
            assert connection.owner is not None
            await asyncio.wait({connection.owner})
        async with manager.borrow(where) as connection:
            await connection.request_raw("ping")
        assert len(manager.list_connections()) == 1


async def test_a_call_that_times_out_or_is_stopped_is_cancelled(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with managed() as manager, manager.borrow(stdio("--hang-call", "--record", str(record))) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.request_raw("tools/call", CALL, timeout=0.3)
        stopped = asyncio.create_task(connection.request_raw("tools/call", CALL))
        await connection.request_raw("ping")
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        await connection.request_raw("ping")
    assert record.read_text().count("notifications/cancelled") == 2
    assert "end of input" in record.read_text()  # it was asked to end before it was made to


# --- No process is left -------------------------------------------------------------------------------------------


async def test_twenty_connections_that_are_opened_and_closed_leave_nothing(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    tasks = asyncio.all_tasks()
    for _ in range(4):
        async with managed() as manager:

            async def use(manager: ConnectionManager = manager) -> None:
                async with manager.borrow(stdio()) as connection:
                    await connection.request_raw("ping")

            await asyncio.gather(*(use() for _ in range(5)))
        assert children() == []
    assert asyncio.all_tasks() == tasks
    assert psutil.Process().num_fds() <= before + 2


async def test_a_child_that_ignores_every_request_to_end_is_killed_in_time() -> None:
    async with managed() as manager:
        async with manager.borrow(stdio("--ignore-end")) as connection:
            await connection.request_raw("ping")
        assert children() != []
        await manager.aclose()
        assert children() == []


@pytest.mark.parametrize("flags", [(), ("--ignore-end",)])
async def test_the_children_of_a_server_end_with_it(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = tmp_path / "pids"
    async with managed() as manager:
        async with manager.borrow(stdio("--grandchild", str(file), *flags)) as connection:
            await connection.request_raw("ping")
        pids = [int(pid) for pid in file.read_text().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
    await ended(pids)


async def test_the_children_of_a_server_that_died_end_too(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with managed() as manager:
        async with manager.borrow(stdio("--die-in-call", "--grandchild", str(file))) as connection:
            with pytest.raises(ConnectionLostError):  # although the grandchild holds its standard output open
                await connection.request_raw("tools/call", CALL)
        pids = [int(pid) for pid in file.read_text().split()]
    await ended(pids)


async def test_a_task_that_is_cancelled_in_mid_call_leaves_the_process_to_the_pool() -> None:
    async with managed() as manager:

        async def use() -> None:
            async with manager.borrow(stdio("--hang-call")) as connection:
                started.set()
                await connection.request_raw("tools/call", CALL)

        started = asyncio.Event()
        task = asyncio.create_task(use())
        await started.wait()
        task.cancel()
        await asyncio.wait({task})
        (info,) = manager.list_connections()
        assert info.leases == 0
    assert children() == []


async def test_a_task_that_is_cancelled_while_connecting_leaves_nothing() -> None:
    asked = asyncio.Event()

    async def heard(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    async with await asyncio.start_server(heard, "127.0.0.1", 0) as telling, managed() as manager:
        port = telling.sockets[0].getsockname()[1]

        async def use() -> None:
            async with manager.borrow(stdio("--hang-initialize", "--ignore-end", "--tell", str(port))):
                pass

        task = asyncio.create_task(use())
        await asked.wait()
        assert children() != []
        task.cancel()
        await asyncio.wait({task})
    assert children() == []


async def ended(pids: list[int]) -> None:
    """Return once none of these processes runs: nothing tells us of the end of a process that is not our child."""
    while any(_running(pid) for pid in pids):  # noqa: ASYNC110 # there is no event, as said
        await asyncio.sleep(0.01)


def _running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
