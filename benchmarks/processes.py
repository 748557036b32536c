"""Child processes, each bound to its core, and what they use: CPU seconds, resident megabytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


def _cores() -> list[int]:
    if shutil.which("taskset") is None or not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


CORES = _cores()
SERVER_CORE = CORES[0] if len(CORES) > 1 else None
OTHER_CORE = CORES[1] if len(CORES) > 1 else None


def pin_self() -> None:
    """Bind this process to the core that the server does not have."""
    if OTHER_CORE is not None:
        os.sched_setaffinity(0, {OTHER_CORE})


def command(core: int | None, *arguments: str) -> list[str]:
    """This interpreter with `arguments`, bound to `core`."""
    pinned = ["taskset", "--cpu-list", str(core)] if core is not None else []
    return [*pinned, sys.executable, *arguments]


def started(core: int | None, *arguments: str, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(command(core, *arguments), cwd=ROOT, env=env, stdout=output, stderr=output)


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 60.0) -> None:
    """Until the process listens; looks every 5 ms. Raises `RuntimeError` with its log when it ends before."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args} does not listen:\n{log.read_text()}")
        time.sleep(0.005)


def ended(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)


@contextlib.contextmanager
def running(
    *arguments: str, port: int, core: int | None, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A child that listens on `port`, ended on the way out."""
    process = started(core, *arguments, env=env or os.environ, log=log)
    try:
        wait_for_port(port, process, log)
        yield process
    finally:
        ended(process)


class Usage:
    """CPU and memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)

    def _all(self) -> Sequence[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def cpu(self) -> float:
        """Seconds, user and system, so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self._all())

    def others(self) -> float:
        """Seconds of the server's core (of all cores, if it has none) that went to other processes, so far."""
        times = [psutil.cpu_times()] if SERVER_CORE is None else [psutil.cpu_times(percpu=True)[SERVER_CORE]]
        return sum(sum(time) - time.idle - getattr(time, "iowait", 0.0) for time in times) - self.cpu()

    def megabytes(self) -> float:
        return sum(process.memory_info().rss for process in self._all()) / 1e6

    async def peak(self, until: asyncio.Event) -> float:
        """The most megabytes that were seen, looking five times a second."""
        most = self.megabytes()
        while not until.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), 0.2)
            most = max(most, self.megabytes())
        return most


def machine() -> dict[str, object]:
    """What the figures were measured on; `load` tells whether the machine was quiet."""
    model = (
        next(
            (
                line.split(":")[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if "model name" in line
            ),
            "unknown",
        )
        if Path("/proc/cpuinfo").exists()
        else "unknown"
    )
    return {
        "cpu": model,
        "cores": psutil.cpu_count(),
        "server_core": SERVER_CORE,
        "other_core": OTHER_CORE,
        "python": sys.version.split()[0],
        "load": [round(value, 2) for value in os.getloadavg()],
    }
