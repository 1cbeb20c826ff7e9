"""`manage.py gateway`: this process becomes a gateway, which imports no Django."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from tursiops.settings import env


class Command(BaseCommand):
    help = "Serve /v1 and pass everything else to the web process (execs `python -m tursiops.gateway`)."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        environment = env.service_environment([str(settings.PACKAGE_DIR.parent), str(settings.ROOT_DIR)])
        os.execve(sys.executable, [sys.executable, "-m", "tursiops.gateway"], environment)
