"""`manage.py export_config [ORGANIZATION …]`: the stored configuration as a file for `apply_config`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Organization
from conversations.configuration.exporting import export_configuration
from conversations.configuration.recording import record_exported


class Command(BaseCommand):
    help = "Print the stored configuration as YAML; each secret is written as ${ORG_SERVER_NAME}."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("organizations", nargs="*", metavar="ORGANIZATION", help="slugs; default: all")

    def handle(self, *args: Any, **options: Any) -> None:
        slugs: list[str] = options["organizations"]
        known = set(Organization.objects.filter(slug__in=slugs).values_list("slug", flat=True))
        unknown = [slug for slug in slugs if slug not in known]
        if unknown:
            raise CommandError(f"There is no organization {', '.join(unknown)}.")
        text = export_configuration(slugs or None).text
        record_exported(slugs or None)
        self.stdout.write(text, ending="")
