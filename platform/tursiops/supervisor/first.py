"""Child of the supervisor: the database, then the demo; a report after each. Both need Django, so it is loaded once."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from engines.api import Channel, ChildError
from tursiops.supervisor.demo import serve_demo
from tursiops.supervisor.prepare import prepare


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-demo", action="store_true")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    options = parser.parse_args(argv)
    channel = Channel(sys.stdout)
    began = datetime.now(UTC)
    import django

    django.setup()
    from tursiops.core.errors import TursiopsError

    try:
        channel.report(prepare(channel))
        if not options.no_demo:
            channel.report(serve_demo(channel, options.device, began))
        return 0
    except ChildError as error:
        channel.error(error.code, error.message, error.hint)
    except TursiopsError as error:
        channel.error(error.code, str(error), error.hint)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
