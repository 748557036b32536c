"""`manage.py apply_config FILE [--plan] [--prune]`: make the rows what a configuration file says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from conversations.configuration.applying import apply_configuration
from conversations.configuration.plan import Plan
from conversations.configuration.problems import ConfigurationError


class Command(BaseCommand):
    help = "Make users, organizations, endpoints, servers and agents what the YAML file FILE says."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = argparse.HelpFormatter
        parser.add_argument("file", metavar="FILE", help="the configuration file; - reads standard input")
        parser.add_argument("--plan", action="store_true", help="only print what would change")
        parser.add_argument(
            "--prune",
            action="store_true",
            help="delete what the file's organizations have beyond it; never users and conversations",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            plan = apply_configuration(
                _read(options["file"]), prune=bool(options["prune"]), plan_only=bool(options["plan"])
            )
        except ConfigurationError as error:
            raise CommandError(f"Nothing was changed.\n{error.public_message}") from None
        for line in plan.lines():
            self.stdout.write(line)
        self.stdout.write(_summary(plan, planned=bool(options["plan"])))


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{name}: this is not text in UTF-8.") from None


def _summary(plan: Plan, *, planned: bool) -> str:
    if not plan:
        return "Nothing to change."
    create, change, delete = (plan.count(action) for action in ("create", "change", "delete"))
    if planned:
        return f"Would create {create}, change {change}, delete {delete}. Nothing was changed."
    return f"Created {create}, changed {change}, deleted {delete}."
