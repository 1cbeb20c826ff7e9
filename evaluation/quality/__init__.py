"""How good the answers of a served model are, asked over HTTP."""
