"""`python -m demo` in a process of its own: from nothing, again, and what keeps it from starting."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from demo.running import HERE, DemoError, prepare_folder, remember_address, require_free
from tests.fakes.endpoint import Endpoint, endpoint, text

__all__ = ["endpoint"]

ROOT = HERE.parent
SECONDS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "default", "OPENAI_MODEL": ""} | more


class Demo:
    """A running demo: what it printed until it was ready, its address and its link."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed = ""
        assert process.stdout
        for line in process.stdout:
            self.printed += line
            if "Ctrl-C stops" in line:
                break
        self.link = next(iter(re.findall(r"http://\S+/accounts/link/\S+", self.printed)), "")
        self.address = self.link.split("/accounts/")[0]

    def stop(self) -> str:
        """What it printed after it was ready."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=SECONDS)
        return rest


@contextmanager
def demo(var: Path, port: int, **more: str) -> Iterator[Demo]:
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--port", str(port), "--var", str(var)],
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield Demo(process)
        finally:
            process.kill()


def refused(var: Path, port: int) -> str:
    """The one line with which the demo does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--port", str(port), "--var", str(var)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    return line


def counted(var: Path, table: str) -> int:
    with closing(sqlite3.connect(var / "chatui.sqlite3")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture(scope="module")
def var(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "var"


def test_it_starts_from_nothing_and_its_link_signs_in_once(var: Path) -> None:
    port = free_port()
    with demo(var, port) as running:
        assert f"http://127.0.0.1:{port}/" in running.printed
        assert "scripted demo model" in running.printed
        with urllib.request.urlopen(running.address + "/healthz", timeout=SECONDS) as answer:
            assert answer.status == 200
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with browser.open(running.link, timeout=SECONDS) as page:
            assert page.status == 200
            assert "<form" in page.read().decode()  # a person confirms: a previewing program must not use the link up
        assert running.stop().strip() == ""
        assert running.process.returncode == 0
    assert stat.S_IMODE((var / "demo.env").stat().st_mode) == 0o600
    assert counted(var, "agents_agent") == 1


def of_row(var: Path, column_of_table: str, where: str = "1 = 1") -> str:
    table, column = column_of_table.split(".")
    with closing(sqlite3.connect(var / "chatui.sqlite3")) as database:
        ((value,),) = database.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchall()
    return str(value)


def changed(var: Path, statement: str) -> None:
    with closing(sqlite3.connect(var / "chatui.sqlite3")) as database, database:
        database.execute(statement)


MODEL = "agents_modelendpoint.base_url"
NOTES = ("mcpservers_mcpserver.url", "slug = 'notes'")


def test_started_again_it_keeps_its_data_its_keys_and_the_place_of_the_notes_so_that_linked_accounts_stay(
    var: Path,
) -> None:
    keys = (var / "demo.env").read_text().splitlines()[1:3]
    changed(var, "UPDATE agents_agent SET name = 'Renamed by a person'")
    model, notes = of_row(var, MODEL), of_row(var, *NOTES)
    with demo(var, free_port()) as running:
        assert running.link
        metadata = notes.replace("/mcp", "/.well-known/oauth-authorization-server")
        with urllib.request.urlopen(metadata, timeout=SECONDS) as answer:
            assert answer.status == 200
        assert running.stop().strip() == ""
    assert (var / "demo.env").read_text().splitlines()[1:3] == keys
    assert of_row(var, "agents_agent.name") == "Renamed by a person"
    assert of_row(var, MODEL) != model  # the scripted model listens on another port
    assert of_row(var, *NOTES) == notes


def test_the_notes_move_when_their_place_is_taken_and_an_address_that_a_person_set_is_left_alone(var: Path) -> None:
    changed(var, "UPDATE agents_modelendpoint SET base_url = 'https://models.example.org/v1'")
    notes = of_row(var, *NOTES)
    taken = int(notes.split(":")[2].split("/")[0])
    with socket.create_server(("127.0.0.1", taken)), demo(var, free_port()) as running:
        assert of_row(var, *NOTES) != notes
        running.stop()
    assert of_row(var, MODEL) == "https://models.example.org/v1"


def test_manage_py_works_with_the_demo_s_database_and_keys(var: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "signin_link", "demo"],
        cwd=ROOT,
        env=environment(VAR_DIR=str(var)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/accounts/link/\S+", done.stdout.strip()), done


def test_a_second_one_on_the_same_data_does_not_start(var: Path) -> None:
    with demo(var, free_port()) as running:
        line = refused(var, free_port())
        assert line.startswith(f"Another server (process {running.process.pid}) uses ")
        # Links of manage.py still lead to the one that runs.
        assert f"BASE_URL={running.address}\n" in (var / "demo.env").read_text()
        running.stop()


def test_an_operator_s_database_is_never_used(var: Path) -> None:
    with demo(var, free_port(), DATABASE_URL="postgres://nobody@127.0.0.1:1/none") as running:
        assert running.link
        assert counted(var, "accounts_user") == 2
        running.stop()


def test_a_port_in_use_is_one_line_that_names_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert refused(tmp_path, port) == f"Port {port} is in use. Choose another one: make demo PORT={port + 1}"
    assert not (tmp_path / "demo.env").exists()


@pytest.mark.parametrize("port", [70000, -5, 0])
def test_a_port_that_cannot_be_is_one_line(port: int) -> None:
    with pytest.raises(DemoError, match=r"port"):
        require_free(port)


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"file cannot be written to \(.*\): set VAR_DIR"):
        prepare_folder(tmp_path / "file")


def test_a_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write everywhere")
    with pytest.raises(DemoError, match="VAR_DIR"):
        prepare_folder(tmp_path / "var")


def test_what_a_person_added_to_the_keys_file_stays(tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    with (tmp_path / "demo.env").open("a") as file:
        file.write("MCP_ENV_ALLOWLIST=A=B\n")
    prepare_folder(tmp_path)
    remember_address(tmp_path, 8001)
    text = (tmp_path / "demo.env").read_text()
    assert "MCP_ENV_ALLOWLIST=A=B\n" in text
    assert "BASE_URL=http://127.0.0.1:8001\n" in text


def manage(var: Path, *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    env = environment(VAR_DIR=str(var))
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout.strip()


async def test_the_endpoint_that_the_environment_names_answers(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.models = ["text-embedding-3", "my-model"]
    endpoint.script(text("I am yours."))
    var = tmp_path / "var"
    named = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "canary"}

    def chat() -> None:
        with demo(var, free_port(), **named) as running:
            assert f"Using my-model at 127.0.0.1:{endpoint.port}/v1." in running.printed
            key = manage(var, "createapikey", "demo", "--org", "demo", "--name", "a program").split()[-1]
            body = json.dumps({"model": "assistant", "messages": [{"role": "user", "content": "Whose are you?"}]})
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{running.address}/v1/chat/completions", body.encode(), headers)
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == "I am yours."
            assert "canary" not in running.printed + running.stop()

    await asyncio.to_thread(chat)
    assert endpoint.last.body["model"] == "my-model"
    assert endpoint.last.headers["authorization"] == "Bearer canary"
    assert "cafe__current_time" in endpoint.last.tools
