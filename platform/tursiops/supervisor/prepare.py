"""Child of the supervisor: brings the database up to date and makes sure of an admin. Speaks engines.protocol."""

from __future__ import annotations

import io
import json
import sys

from engines.api import Channel


def main() -> int:
    channel = Channel(sys.stdout)
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
    channel.progress(0.2, "migrating")
    call_command("migrate", interactive=False, stdout=sys.stderr)
    channel.progress(0.9, "admin")
    said = io.StringIO()
    call_command("ensure_admin", stdout=said)
    channel.report(json.loads(said.getvalue()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
