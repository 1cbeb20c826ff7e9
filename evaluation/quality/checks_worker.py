"""Runs patterns and JSON Schemas that people wrote, one JSON line in, one out. Started by `checks.Checker`, which ends
it when a check takes too long. Nothing of ours is imported; nothing is fetched.

In: {rule: "regex"|"json_schema", expected, answer (null: only look at the rule), ignore_case?}.
Out: {fault} or {error}.
"""

import json
import re
import resource
import sys
from typing import Any

from jsonschema import Draft202012Validator, exceptions, validators
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

MOST_MEMORY = 1 << 30  # bytes of address space; a schema or pattern that needs more is at fault

FAULTS = (re.error, exceptions.SchemaError, Unresolvable, TypeError, RecursionError, MemoryError, ValueError)
"""Of the rule. An answer's own faults are told in words; only the rule can raise."""


def fault(job: dict[str, Any]) -> str:
    expected, answer = job["expected"], job["answer"]
    if job["rule"] == "regex":
        pattern = re.compile(expected, re.IGNORECASE if job.get("ignore_case") else 0)
        return "" if answer is None or pattern.search(answer) else f"does not match {expected!r}"
    kind = validators.validator_for(expected, default=Draft202012Validator)
    kind.check_schema(expected)
    if answer is None:
        return ""
    try:
        value = json.loads(answer)
    except ValueError as error:
        return f"is no JSON: {error}"
    found = exceptions.best_match(kind(expected, registry=REGISTRY).iter_errors(value))
    return "" if found is None else f"{found.json_path}: {found.message[:200]}"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            said = {"fault": fault(job)}
        except FAULTS as error:
            what = "pattern" if job["rule"] == "regex" else "JSON Schema"
            told = error.message if isinstance(error, exceptions.SchemaError) else str(error)
            said = {"error": f"`expected` is no {what}: {told or type(error).__name__}"[:500]}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
