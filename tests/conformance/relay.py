"""The command that the official suite starts as its client: hands the scenario to the tests' own process and waits.

`relay.py SOCKET URL`, run by a bare interpreter (`python -S -E`), so that a scenario does not wait for our imports.
"""

import json
import os
import socket
import sys


def main(path: str, url: str) -> int:
    scenario = {
        "url": url,
        "name": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
        "revision": os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", ""),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(scenario).encode() + b"\n")
        with connection.makefile("r") as answers:
            answer = json.loads(answers.readline())
    print(answer["output"])
    return int(not answer["ok"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[-1]))
