"""What can be wrong with a model's files. The codes are those of docs/contracts.md §8."""

from __future__ import annotations

from engines.protocol import ChildError

CODES = frozenset(
    {
        "truncated",
        "bad_magic",
        "missing_tensor",
        "wrong_shape",
        "unknown_architecture",
        "unknown_type",
        "unknown_tokenizer",
        "missing_file",
        "bad_values",
    }
)


class BadModel(ChildError):
    """A model file that cannot be served. The message names the tensor or key; `hint` says what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is not an error code of the model contract")
        super().__init__(code, message, hint)
