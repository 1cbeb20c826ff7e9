"""Runs: a level until it is steady or surely not, a search over levels, and why the figures are as they are."""
