"""Child of the supervisor: the database is brought up to date and has an admin. Speaks engines.protocol."""

from __future__ import annotations

import sys

from engines.api import Channel


def main() -> int:
    channel = Channel(sys.stdout)
    import django
    from django.core.management import call_command

    django.setup()
    channel.progress(0.2, "migrating")
    call_command("migrate", interactive=False, verbosity=1, stdout=sys.stderr)
    channel.progress(0.9, "admin")
    channel.report({})
    return 0


if __name__ == "__main__":
    sys.exit(main())
