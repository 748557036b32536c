"""`python -m demo`: from nothing to a chat in the browser, on this machine alone."""

from __future__ import annotations

import sys

# Before anything that an older Python cannot read; it is the one file that an older Python may meet.
if sys.version_info < (3, 11):  # noqa: UP036 - it runs where we do not
    sys.exit("chatui needs Python 3.11 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031 - as above

import argparse
import os
from pathlib import Path

try:
    from demo.running import DemoError, run
except ModuleNotFoundError as missing:
    sys.exit(f"The package {missing.name} is not installed. `make demo` installs what is needed.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo", description="A chatui to try, on this machine alone.")
    parser.add_argument("--port", type=int, default=8000, help="the port on 127.0.0.1 (8000)")
    parser.add_argument("--var", type=Path, help="the folder for its data (VAR_DIR, else var/ in this repository)")
    options = parser.parse_args()
    default = os.environ.get("VAR_DIR") or Path(__file__).resolve().parent.parent / "var"
    try:
        run(options.port, Path(options.var or default).absolute())
    except DemoError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
