"""The console's Chinese of the platform's sentences: each entry is still said, and what is shown most has one.

An English sentence is its own name in webui/src/i18n/zh/sentences.json; of f-strings only the words are compared.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tursiops.deployments import observed

from tests.running import ROOT

CATALOGUE = json.loads((ROOT / "webui/src/i18n/zh/sentences.json").read_text())
SOURCES = [ROOT / "platform/tursiops", ROOT / "engines", ROOT / "plugins"]
# Reasons that stand beside every state: complete. Elsewhere a missing entry shows English.
COMPLETE = [
    "platform/tursiops/fleet/decide.py",
    "platform/tursiops/fleet/health.py",
    "platform/tursiops/fleet/placement.py",
    "platform/tursiops/deployments/derive.py",
    "platform/tursiops/deployments/plan.py",
    "platform/tursiops/deployments/apply.py",
    *(
        f"platform/tursiops/evaluations/{name}.py"
        for name in ("access", "evidence", "execute", "gates", "plans", "results", "runs")
    ),
    *(f"platform/tursiops/quantization/{name}.py" for name in ("devices", "execute", "plans", "verdicts")),
    "engines/native/contract.py",
    "plugins/quantization/spec.py",
]
VERBS = [*observed._VERBS.values(), "is to stop", "is gone"]
# Put together at run time, of parts that the source has apart.
COMPOSED = {
    "{} of {} {} ready.": ["{} ready.", "{} of {} {}"],
    "{} instance ends its requests.": ["{} {} requests.", "instance ends its"],
    "{} instances end their requests.": ["{} {} requests.", "instances end their"],
    "{}; its share is {}.": ["{}; its share is {}."],
    "The engine was ended by {}.": ["The engine was ended by {}{}."],
    "The engine was ended by {} (out of memory?).": ["The engine was ended by {}{}.", "(out of memory?)"],
    "The engine ended with exit code {}.": ["The engine ended with exit code {}{}."],
    "The engine ended with exit code {}: {}.": ["The engine ended with exit code {}{}.", ": {}"],
    "Its worker on {} fell silent in attempt {} of {}.": ["Its worker on {} fell silent", "{} in attempt {} of {}."],
    "Its worker on {} fell silent in attempt {} of {}; queued again.": ["{} in attempt {} of {}; queued again."],
    **{
        f"Deployment {{}} {verb}.": [verb, "Deployment {} {}."]
        for verb in ("was stopped", "was started", "was deleted")
    },
    **{f"{{}} {{}} {{}} {verb}{end}": [verb] for verb, end in itertools.product(VERBS, (".", ": {}"))},
    **{
        f"Gate {{}}: {{}} is {{}} in the run of {{}}; at {edge} {{}} is asked.": [
            "Gate {}: {} is {} in the run of {}",
            f"{{}}; at {edge} {{}} is asked.",
        ]
        for edge in ("least", "most")
    },
    **{
        f"{figure.format(value='{}')}; at {edge} {limit} is asked.": [figure_said, "{}; {} {} is asked."]
        for figure, figure_said, edge, limit in (
            ("The perplexity is {value} × the base's", "The perplexity is {value:.4g} × the base's", "most", "{} ×"),
            (
                "The likeliest token is the base's in {value} of places",
                "The likeliest token is the base's in {value:.2%} of places",
                "least",
                "{}",
            ),
            (
                "The KL divergence is {value} nats per token",
                "The KL divergence is {value:.3g} nats per token",
                "most",
                "{}",
            ),
            ("{value} products were not made as asked", "{value:.0f} products were not made as asked", "most", "{}"),
            (
                "Training won back {value} of what rounding lost",
                "Training won back {value:.1%} of what rounding lost",
                "least",
                "{}",
            ),
        )
    },
    "The kept traffic of {} consenting keys has {}, enough for about {} rows of {} tokens; {} are asked for.": [
        "The kept traffic of {} consenting keys",
        "{} has {}, enough for about {} rows of {} tokens; {} are asked for.",
    ],
    "The built-in text has {}, enough for about {} rows of {} tokens; {} are asked for.": [
        "The built-in text",
        "{} has {}, enough for about {} rows of {} tokens; {} are asked for.",
    ],
    **{f"{{}} {how}.": ["{} {}.", how] for how in ("failed the gate of its quantization", "has no verdict")},
    "Give at least {}.": ["Give {}.", "at least {}"],
    "Give at least {} and at most {}.": ["Give {}.", "at least {}", "and at most {}"],
    "{} does not divide {}: {} inputs": ["{} does not divide {}: {}", "{} inputs"],
    "{} does not divide {}: {} / {} ranks = {} inputs": [
        "{} does not divide {}: {}",
        "{} / {} ranks = {} inputs",
    ],
    "{} {}: {}": ["{} {}: {}"],
    "{}: {}": ["{}: {}"],
}
NEVER_ALONE = {
    "The engine was ended by {}{}.",
    "The engine ended with exit code {}{}.",
    "{} ready.",
    "{} {} requests.",
    "{}; at least {} is asked.",
    "{}; at most {} is asked.",
    "{}; {} {} is asked.",
    "Choose {}.",
    "Give {}.",
}


def template(node: ast.AST) -> str:
    """A string as the catalogue names it: `{}` for what is put in, in quotes for `!r`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    assert isinstance(node, ast.JoinedStr)
    return "".join(
        ("'{}'" if part.conversion == ord("r") else "{}") if isinstance(part, ast.FormattedValue) else template(part)
        for part in node.values
    )


def sentences(text: str) -> Iterator[str]:
    """As sentences.ts takes a text apart; a place before a sentence is a sentence of its own."""
    for part in re.split(r"(?<=[.!?]) +", text.strip()):
        yield re.sub(r"^\{\} (?=[A-Z])", "", part)


def said(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    apart = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    apart |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in apart:
            yield from sentences(template(node))


@cache
def everything_said() -> frozenset[str]:
    return frozenset(text for folder in SOURCES for path in folder.rglob("*.py") for text in said(path))


def places(english: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", english)


def test_what_is_translated_is_said():
    parts = {english: COMPOSED.get(places(english), [places(english)]) for english in CATALOGUE}
    stale = [english for english, needed in parts.items() if not everything_said().issuperset(needed)]
    assert stale == [], "no longer said: change webui/src/i18n/zh/sentences.json with the sentence"


@pytest.mark.parametrize("path", COMPLETE)
def test_reasons_of_states_are_translated(path):
    known = {places(english) for english in CATALOGUE} | NEVER_ALONE
    shown = {text for text in said(ROOT / path) if re.match(r"[A-Z{].*[a-z].*\.$", text)}
    assert shown - known == set(), "add them to webui/src/i18n/zh/sentences.json"
