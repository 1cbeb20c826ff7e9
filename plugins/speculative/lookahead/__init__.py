"""Guesses from what was already said: the row's own text, and what the same tenant's requests have said before.

proposer.py   Lookahead: rows come and go, trees go out, what came true comes back
local.py      a row's own prompt and output
tenants.py    a store for each salt, under one byte cap; store.py: a ring of tokens
chains.py     both are found by hash chains over n-grams; tokens are compared, hashes never believed
matches.py    the places whose text before them is the row's newest text
branches.py   what followed there, as a tree, best first
survival.py   how often guesses of each class hold, counted
"""

from plugins.speculative.lookahead.proposer import Lookahead

__all__ = ["Lookahead"]
