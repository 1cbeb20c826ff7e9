"""First steps on a fresh machine. Standard library only: it runs before anything is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(argv: list[str], root: Path | None) -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tursiops.settings.prod")
    from django.core.management import execute_from_command_line

    execute_from_command_line([sys.argv[0], *argv])
    return 0


def console_main() -> int:
    return main(sys.argv[1:], root=None)
