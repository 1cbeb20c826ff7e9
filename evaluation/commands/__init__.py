"""One module per command of `tursiops-eval`. Each has `register(commands)`: it adds its parser and sets `action`.

    def register(commands: Commands) -> None:
        parser = commands.add_parser("compare", help="…")
        parser.set_defaults(action=compare)          # compare(arguments: argparse.Namespace) -> int, the exit code

Exit codes: 0 pass (or done, where nothing is judged), 1 fail, 2 nothing could be done (the error says why),
3 undetermined or invalid, 4 incomplete.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

PASS, FAIL, ERROR, UNDETERMINED, INCOMPLETE = range(5)
