"""Prints every environment variable that Tursiops reads, as a Markdown table."""

from typing import Any

from django.core.management.base import BaseCommand

from tursiops.settings import env


class Command(BaseCommand):
    help = "Print the table of environment variables (Markdown)"
    requires_system_checks: list[str] = []  # works without a database

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write("| variable | type | default | meaning |\n|---|---|---|---|")
        for variable in env.VARIABLES:
            kind = variable.parse.__name__.lstrip("_")
            default = f"`{variable.default}`" if variable.default not in ("", []) else ""
            self.stdout.write(f"| `{variable.name}` | {kind} | {default} | {variable.help} |")
