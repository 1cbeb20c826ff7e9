"""`tursiops-eval compare BASE OTHER …`: effect sizes, intervals and verdicts of two or more results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands import ERROR, FAIL, PASS, UNDETERMINED
from evaluation.report.comparison.compare import compare
from evaluation.report.comparison.document import THRESHOLD
from evaluation.report.comparison.terminal import text
from evaluation.report.errors import ReportError
from evaluation.report.html.compare import comparison_page
from evaluation.schema import encode

if TYPE_CHECKING:
    from evaluation.commands import Commands


def register(commands: Commands) -> None:
    parser = commands.add_parser("compare", help="two or more results: effects, intervals, significance")
    parser.add_argument(
        "results",
        nargs="+",
        type=Path,
        help="the base, then what is compared with it: folders of runs, folders of repeats, or other tools' files",
    )
    parser.add_argument("--threshold", type=_share, default=THRESHOLD, help="relative change that matters (0.03)")
    parser.add_argument("--all", action="store_true", help="show the figures without a difference, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison as JSON; - prints it instead")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as a page", nargs="?", const="compare.html")
    parser.add_argument("--language", choices=["en", "zh"], default="en", help="that the page opens in")
    parser.set_defaults(action=run)


def _share(told: str) -> float:
    value = float(told)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{told} is no share: 0.03 means 3 %")
    return value


def run(told: argparse.Namespace) -> int:
    """Exit code: fail where something is worse, undetermined where runs must not be compared."""
    try:
        found = compare(told.results, told.threshold)
    except (ReportError, ValueError) as error:
        print(f"tursiops-eval compare: {error}", file=sys.stderr)
        return ERROR
    if told.json == Path("-"):
        print(encode(found).decode())
    else:
        print(text(found, everything=told.all), end="")
        if told.json is not None:
            told.json.write_bytes(encode(found) + b"\n")
    if told.html is not None:
        Path(told.html).write_text(comparison_page(found, told.language), "utf-8")
        print(f"page: {Path(told.html).resolve()}", file=sys.stderr)
    return UNDETERMINED if found.refused else FAIL if found.worse else PASS
