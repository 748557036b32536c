"""Sets Django up, then runs `measure(…)` of the module that is named; prints what it returns as JSON, on one line."""

from __future__ import annotations

import importlib
import json
import os
import sys

import django


def main(what: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")
    django.setup()
    print(json.dumps(importlib.import_module(f"benchmarks.inside.{what}").measure(*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
