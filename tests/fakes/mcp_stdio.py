"""An MCP server over stdio, run as a child, with faults that its arguments switch on. It needs only Python.

`python tests/fakes/mcp_stdio.py [--banner] [--noise] [--crash] [--die-in-call] [--hang-initialize] [--hang-call]
[--ignore-end] [--grandchild FILE] [--big N] [--malformed] [--modern] [--log TEXT] [--half-character]
[--tell PORT]`
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

arguments = argparse.ArgumentParser()
for flag in (
    "banner",
    "noise",
    "crash",
    "die-in-call",
    "hang-initialize",
    "hang-call",
    "ignore-end",
    "malformed",
    "modern",
    "id-last",
    "half-character",
    "handshake-or-die",
):
    arguments.add_argument(f"--{flag}", action="store_true")
arguments.add_argument("--grandchild", default="")
arguments.add_argument("--record", default="")
arguments.add_argument("--big", type=int, default=0)
arguments.add_argument("--log", default="")
arguments.add_argument("--tell", type=int, default=0)
options = arguments.parse_args()


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def note(text: str) -> None:
    if options.record:
        with open(options.record, "a") as file:
            file.write(text + "\n")


def call(request: dict[str, Any]) -> None:
    number = request["id"]
    if options.die_in_call:
        os._exit(7)
    if options.hang_call:
        return
    if options.malformed:
        send({"jsonrpc": "2.0", "id": number, "error": "oops"})
        return
    text = "x" * options.big if options.big else json.dumps(dict(os.environ) | {"argv": " ".join(sys.argv[1:])})
    if options.half_character:
        text = "hi \ud83d there"
    result = {"content": [{"type": "text", "text": text}]}
    if options.id_last:
        send({"result": result, "jsonrpc": "2.0", "id": number})
    else:
        send({"jsonrpc": "2.0", "id": number, "result": result})


def answer(request: dict[str, Any]) -> None:
    number, method = request.get("id"), request.get("method")
    if options.noise:
        print("debug: handling", method, flush=True)
    if number is None:
        note(f"{method} {json.dumps(request.get('params'))}")
        return
    if options.handshake_or_die and method == "server/discover":
        os._exit(9)
    info = {"name": "stdio-fake", "version": "1"}
    match method:
        case "initialize" if options.hang_initialize:
            if options.tell:
                socket.create_connection(("127.0.0.1", options.tell)).close()
            return
        case "initialize" if not options.modern:
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "server/discover" if options.modern:
            result = {
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
            }
        case "tools/list":
            result = {"tools": [{"name": "environment", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            call(request)
            return
        case "ping":
            result = {}
        case _:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}})
            return
    send({"jsonrpc": "2.0", "id": number, "result": result})


def main() -> None:
    if options.log:
        print(options.log, file=sys.stderr, flush=True)
    if options.crash:
        sys.exit(3)
    if options.ignore_end:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.grandchild:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(options.grandchild, "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
    if options.banner:
        print("Server mode: STDIO", flush=True)
        print("{not json", flush=True)
    for line in sys.stdin:
        answer(json.loads(line))
    note("end of input")
    while options.ignore_end:  # until it is killed
        time.sleep(1)


main()
