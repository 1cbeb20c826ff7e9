"""`tursiops-eval search`: the largest rate that meets an objective, without a spec file."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from evaluation import scenarios
from evaluation.commands.run import REFUSALS, add_output, carry_out, default_folder, refuse
from evaluation.progress import reporter
from evaluation.spec_errors import SpecError, read_spec

if TYPE_CHECKING:
    from evaluation.commands import Commands

_SLO = re.compile(r"^\s*p(?P<q>\d+(?:\.\d+)?)\s+(?P<metric>ttft|e2el|tpot|itl)\s*<=?\s*(?P<limit>\d+(?:\.\d+)?)\s*"
                  r"(?P<unit>ms|s)\s*$", re.IGNORECASE)  # fmt: skip


def register(commands: Commands) -> None:
    parser = commands.add_parser("search", help="find the largest rate that meets an objective")
    parser.add_argument("url", help="of the endpoint, without /v1")
    parser.add_argument("--slo", action="append", default=[], metavar="TEXT", help='as "p95 e2el <= 5 s"; repeatable')
    parser.add_argument("--scenario", default="", choices=["", *scenarios.SCENARIOS], help="its data set and SLO")
    parser.add_argument("--model", default="", help="default: the only one of /v1/models")
    parser.add_argument("--api-key-env", default="", help="environment variable that holds the key")
    parser.add_argument("--low", type=float, default=0.5, help="first rate, requests/s")
    parser.add_argument("--high", type=float, help="never go beyond, requests/s")
    parser.add_argument("--prompt-tokens", type=float, help="mean; default: the scenario's, or 512")
    parser.add_argument("--output-tokens", type=float, help="mean; default: the scenario's, or 128")
    parser.add_argument("--min-requests", type=int, default=1000, help="in a level; P99 needs 299 at least")
    parser.add_argument("--max-level-s", type=float, default=600.0, help="longest level")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="of a request")
    parser.add_argument("--processes", type=int, default=1, help="of the client")
    parser.add_argument("--seed", type=int, help="default: drawn fresh, and recorded")
    add_output(parser)
    parser.set_defaults(action=search)


def objective(text: str) -> dict[str, Any]:
    """ "p95 e2el <= 5 s" as an Objective. Raises SpecError."""
    found = _SLO.match(text)
    if found is None:
        raise SpecError("--slo", f"{text!r} is no objective", 'Write it as "p99 ttft <= 500 ms"')
    factor = 1000 if found["unit"].lower() == "s" else 1
    return {
        "metric": found["metric"].lower(),
        "quantile": round(float(found["q"]) / 100, 6),
        "limit_ms": float(found["limit"]) * factor,
    }


def spec_of(arguments: argparse.Namespace) -> dict[str, Any]:
    dataset: dict[str, Any] = scenarios.dataset(arguments.scenario)
    for name, mean in (("prompt", arguments.prompt_tokens), ("output", arguments.output_tokens)):
        if mean is not None:
            dataset[name] = {"mean": mean}
    load = {"kind": "search", "low": arguments.low, "high": arguments.high}
    return {
        "endpoint": {
            "url": arguments.url,
            "model": arguments.model,
            "api_key_env": arguments.api_key_env,
            "timeout_s": arguments.timeout_s,
        },
        "dataset": dataset,
        "load": load,
        "slo": [objective(text) for text in arguments.slo],
        "scenario": arguments.scenario,
        "min_requests": arguments.min_requests,
        "processes": arguments.processes,
        "seed": arguments.seed,
        "steady": {"max_s": arguments.max_level_s, "min_s": min(20.0, arguments.max_level_s)},
    }


def search(arguments: argparse.Namespace) -> int:
    report = reporter(arguments.progress)
    try:
        return carry_out(read_spec(spec_of(arguments)), arguments.out or default_folder(), report)
    except REFUSALS as error:
        return refuse(error, report)
