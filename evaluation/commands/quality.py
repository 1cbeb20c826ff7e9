"""`tursiops-eval quality SUITE`: a suite, bundled or of a file, against an endpoint that the command line names.

`tursiops-eval run` takes suites, too; here endpoints, baseline and the names of bundled suites come beside them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evaluation.commands.run import REFUSALS, add_output, carry_out, default_folder, refuse
from evaluation.progress import reporter
from evaluation.quality.suite import Suite, bundled, open_suite
from evaluation.runner.run import RunError
from evaluation.schema import Endpoint
from evaluation.spec_errors import SpecError

if TYPE_CHECKING:
    from evaluation.commands import Commands

ROLES = {"endpoint": "", "reference": "reference-", "judge": "judge-"}


def register(commands: Commands) -> None:
    parser = commands.add_parser("quality", help="run a quality suite: tasks, intervals, gates")
    parser.add_argument("suite", nargs="?", help=f"JSON file, or one of {', '.join(bundled())}")
    parser.add_argument("--resume", metavar="FOLDER", type=Path, help="go on with the run of this folder")
    for role, prefix in ROLES.items():
        parser.add_argument(f"--{prefix}url", metavar="URL", help=f"of the {role}, without /v1")
        parser.add_argument(f"--{prefix}model", metavar="NAME", help="empty: the only one that it serves")
        parser.add_argument(f"--{prefix}api-key-env", metavar="NAME", help="variable that holds its key")
    parser.add_argument("--baseline", metavar="FOLDER", type=Path, help="an earlier run, for baseline gates")
    add_output(parser)
    parser.set_defaults(action=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, as of `tursiops-eval run`."""
    report = reporter(arguments.progress)
    try:
        if (arguments.suite is None) == (arguments.resume is None):
            hint = f"tursiops-eval quality basic --url http://…; suites: {', '.join(bundled())}"
            raise RunError("no_suite", "give a suite, or --resume with the folder of a run", hint)
        folder = arguments.resume or arguments.out or default_folder()
        suite, base = open_suite(str(folder / "spec.json") if arguments.resume else arguments.suite)
        suite = told(suite, arguments)
        return carry_out(suite, folder, report, base=base, resumed=arguments.resume is not None)
    except REFUSALS as error:
        return refuse(error, report)


def told(suite: Suite, arguments: argparse.Namespace) -> Suite:
    """The suite with what the command line says. Raises SpecError."""
    changes: dict[str, object] = {}
    for role, prefix in ROLES.items():
        names = {"url": "url", "model": "model", "api_key_env": "api_key_env"}
        key = prefix.replace("-", "_")
        given = {field: value for field, name in names.items() if (value := getattr(arguments, key + name)) is not None}
        if given:
            changes[role] = _endpoint(role, getattr(suite, role), given)
    if arguments.baseline is not None:
        changes["baseline"] = str(arguments.baseline.resolve())
    return msgspec.structs.replace(suite, **changes)


def _endpoint(role: str, old: Endpoint | None, given: dict[str, str]) -> Endpoint:
    fields = (msgspec.to_builtins(old) if old is not None else {}) | given
    try:
        return msgspec.convert(fields, Endpoint)
    except msgspec.ValidationError as error:
        raise SpecError(f"$.{role}", str(error), "As --url http://127.0.0.1:8000") from error
