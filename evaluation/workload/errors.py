"""What is wrong with a data set."""

from __future__ import annotations


class DatasetError(ValueError):
    """Names the file, the line and the field where there are any, the reason, and what to do."""

    code = "invalid_dataset"

    def __init__(self, path: str, reason: str, fix: str = "", *, line: int | None = None, field: str = "") -> None:
        place = path + (f", line {line}" if line is not None else "") + (f", field `{field}`" if field else "")
        super().__init__(f"{place}: {reason}" + (f". {fix}" if fix else ""))
        self.path, self.line, self.field, self.reason, self.fix = path, line, field, reason, fix
