"""Brings the database up to date and makes sure of an admin."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from engines.api import Channel


def prepare(channel: Channel) -> dict[str, Any]:
    """{created, username, password} of the admin; the password of one made just now. Django is set up."""
    from django.conf import settings
    from django.core.management import call_command

    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
    channel.progress(0.2, "migrating")
    call_command("migrate", interactive=False, stdout=sys.stderr)
    channel.progress(0.9, "admin")
    said = io.StringIO()
    call_command("ensure_admin", stdout=said, skip_checks=True)
    admin: dict[str, Any] = json.loads(said.getvalue())
    return admin
