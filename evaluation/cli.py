"""`tursiops-eval COMMAND …`, also `python -m evaluation COMMAND …`. Needs no Django and no running platform."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from evaluation import commands


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="tursiops-eval", description="Load tests that certify, quality, planning.")
    found = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in sorted(pkgutil.iter_modules(commands.__path__), key=lambda one: one.name):
        importlib.import_module(f"evaluation.commands.{module.name}").register(found)
    return root


def main(words: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(words)
    return int(arguments.action(arguments))


if __name__ == "__main__":
    sys.exit(main())
