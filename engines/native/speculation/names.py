"""Names of proposers, for those who only ask what there is: nothing heavy is imported."""

from __future__ import annotations

from importlib.metadata import entry_points

OFF, AUTO = "off", "auto"
GROUP = "tursiops.engine_proposers"

BUILT_IN = {
    "lookahead": "plugins.speculative.lookahead:Lookahead",
    "ngram": "plugins.speculative.ngram:Ngram",
    "draft": "plugins.speculative.draft_model:DraftModel",
    "eagle3": "plugins.speculative.eagle3:Eagle3",
    "medusa": "plugins.speculative.medusa:Medusa",
}
"""Those that ship with Tursiops, by import path: the engine imports none of them before its name is asked for."""
DRAFTING = ("draft", "eagle3", "medusa")
"""Of them those that compute with a model or head of their own."""


def asks_for(option: str, name: str) -> bool:
    """Whether option `speculation` has the proposer guess, where its files are given."""
    return option == AUTO or name in option.split("+")


def proposer_names() -> list[str]:
    """All that option `speculation` can name."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})
