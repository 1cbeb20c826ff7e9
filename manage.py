#!/usr/bin/env python3
"""Command line of Tursiops. `up` and `test` set the machine up first; everything else is Django's."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "platform"))


def main() -> int:
    from tursiops import bootstrap

    return bootstrap.main(sys.argv[1:], root=ROOT)


if __name__ == "__main__":
    sys.exit(main())
