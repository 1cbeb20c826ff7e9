"""Data sets by their `kind`. All draw from streams that a seed and a path name, so that none repeats another's prompts.

A *stream* is "measured" or "warm_up": prompts of the two share nothing, prefixes included, or the first measured
request would hit what the warm-up left in the cache.
"""

from __future__ import annotations

from evaluation.workload.datasets.build import Built, build

__all__ = ["Built", "build"]
