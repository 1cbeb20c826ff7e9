"""Several tokens in one pass: proposers guess what follows, the model checks all guesses at once, and says the same.

names.py       which proposers there are, without an import of any
proposer.py    what a plugin implements: propose(rows) → trees, observe(what came)
tree.py        guesses of one row: tokens, parents, confidence
budget.py      how many guesses a pass may carry, by what passes cost and how often guesses hold
worth.py       what each source's promises are worth, by what was kept of them
speculator.py  the scheduler's side of it, one round: propose → choose → plan → launch, meanwhile → commit → observe
heads.py       what a folder with a head in it is, for the registry
verify.py      which guesses hold, and how the KV cache is put in order behind them
"""
