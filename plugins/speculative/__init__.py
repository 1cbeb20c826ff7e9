"""Proposers of `engines.native.speculation`: where guesses come from. Deleting one breaks no other; without any of them
engines say one token a step."""
