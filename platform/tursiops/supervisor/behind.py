"""`… -m tursiops.supervisor.behind FILE COMMAND …`: a Django command that loads at once and begins when FILE is there.

Migrations that have nothing to do take a tenth of what loading Django takes. So the processes that need the tables
load beside them and wait for their end alone; one that is started again later finds FILE and begins at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

LOOK_S = 0.05


def main(argv: list[str]) -> int:
    file, name, *rest = argv
    import django
    from django.core.management import CommandError, call_command, get_commands, load_command_class

    django.setup()
    command = load_command_class(get_commands()[name], name)
    while not Path(file).exists():  # where it never comes, the supervisor ends us
        time.sleep(LOOK_S)
    try:
        # System checks judge the code and import all of its views, half a second of every start: CI runs them.
        call_command(command, *rest, skip_checks=True)
    except CommandError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
