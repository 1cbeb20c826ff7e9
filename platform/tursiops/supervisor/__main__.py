"""`up`, inside the environment: `python -m tursiops.supervisor [flags of up]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from tursiops.bootstrap import keep_bytecode, up_parser
from tursiops.progress import FREE, SetupError, disk_full


def main(argv: list[str]) -> int:
    options = up_parser().parse_args(argv)
    set_environment(options)
    from tursiops.settings.env import SettingsError
    from tursiops.supervisor.state import AlreadyRunning

    try:
        from tursiops.supervisor.up import Up

        return asyncio.run(Up(options).run())
    except (SetupError, SettingsError, AlreadyRunning) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not (full := disk_full(error)):
            raise
        print(f"\n{SetupError('start', full, FREE)}", file=sys.stderr)
        return 1


def set_environment(options: argparse.Namespace) -> None:
    """Flags become the variables of the settings table, which every child reads. Before settings are imported."""
    if options.data_dir is not None:
        os.environ["TURSIOPS_DATA_DIR"] = str(options.data_dir.expanduser().resolve())
    if options.port is not None:
        os.environ["TURSIOPS_GATEWAY_PORT"] = str(options.port)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tursiops.settings.prod")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch threads must not spin on a busy machine
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # threads of small services: less memory, no loss
    os.environ["PYTHONUNBUFFERED"] = "1"
    keep_bytecode(os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
