"""The real core, to whose budget every pass costs the same: what is guessed is tried, however loaded the machine is.

script {"core": "tests.engines.eager_core"} of tests.engines.scripted_instance
"""

from __future__ import annotations

import sys

from engines.native import core
from engines.native.speculation import setup
from engines.native.speculation.budget import StepCosts


class EqualCosts(StepCosts):
    def plain(self, rows: int) -> float:
        return 1.0

    def verify(self, rows: int, tokens: int) -> float:
        return 1.0


if __name__ == "__main__":
    setup.StepCosts = EqualCosts  # type: ignore[misc] # what `speculation_of` makes
    sys.exit(core.serve(core.parse(), core.build))
