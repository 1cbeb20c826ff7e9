"""A plugin of a stranger that can't be imported here."""

raise RuntimeError("libacme.so.7 is missing")
