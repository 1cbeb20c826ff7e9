"""What would come of it, before anything starts: sizes, and what stands in the way, by field with a proposal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jsonschema

from engines.api import ModelShape, shard_refusals, size_text
from plugins.api import BringsTexts, TellsNeeds
from tursiops.accounts.models import Team
from tursiops.core.errors import Conflict, TursiopsError
from tursiops.deployments.specs import shape_of
from tursiops.fleet.models import Node
from tursiops.quantization import sizes, traffic
from tursiops.quantization.asked import BETTER, LONGEST_KEPT, MOST_KEPT, Asked, Calibration, Choice
from tursiops.quantization.models import Quantization
from tursiops.quantization.schemes import schemes
from tursiops.registry.models import Version, VersionState

BYTES_PER_TOKEN = 3  # of ordinary text, at least: an estimate that refuses nothing that could do
BLOCK = (128, 128)
ASKED_ELSEWHERE = {"scheme": "scheme", "samples": "calibration.samples", "tokens": "calibration.tokens"}
_COUNT = {"type": "integer", "minimum": 0}
_READ_HERE = {
    "properties": {
        "group_size": _COUNT,
        "budget_bytes": _COUNT,
        "keep": {"type": "array", "items": {"type": "string"}},
    }
}
"""Options that sizes are made of: checked whatever the schema of an optimizer leaves open."""


def plan(base: Version, asked: Asked) -> dict[str, Any]:
    """As the API tells it. Raises Conflict for a base that is not ready, TursiopsError for one that can't be a base."""
    require_base(base)
    shape = shape_of(base)
    plans = [_of_choice(base, shape, index, choice, asked) for index, choice in enumerate(asked.choices)]
    makers = [each.scheme.maker for each in asked.choices if _needs_data(each, each.recipe(asked.calibration))]
    found = _calibration(asked.calibration, base.model.team, makers) if makers else None
    return {"plans": plans, "calibration": found}


def require_plan(base: Version, asked: Asked) -> None:
    """Raises TursiopsError with all that stands in the way, by field."""
    found = plan(base, asked)
    problems = [problem for each in found["plans"] for problem in each["problems"]]
    problems += found["calibration"]["problems"] if found["calibration"] else []
    errors = [problem for problem in problems if problem["severity"] == "error"]
    if not errors:
        return
    fields: dict[str, list[str]] = {}
    for problem in errors:
        told = f"{problem['message']} {problem['proposal']}".strip()
        if told not in fields.setdefault(problem["field"], []):
            fields[problem["field"]].append(told)
    first = errors[0]
    raise TursiopsError(
        f"{first['field']}: {first['message']}", hint=first["proposal"], code=first["code"], fields=fields
    )


def require_base(base: Version) -> None:
    if base.state != VersionState.READY:
        raise Conflict(f"{base} is {base.state}; versions are made of one that is ready.", code="version_not_ready")
    if base.shape.get("task", "generate") != "generate":
        raise TursiopsError(f"{base} makes vectors or scores; quantization is for models that generate.")
    if base.format == "safetensors" and base.shape.get("quantized_parameters"):
        raise TursiopsError(
            f"{base} is quantized already ({base.quantization}): what its digits lost is not in it any more.",
            hint="Choose the version that it was made of.",
            code="already_quantized",
        )


def _of_choice(base: Version, shape: ModelShape, index: int, choice: Choice, asked: Asked) -> dict[str, Any]:
    wrong = list(_option_problems(choice, asked.calibration, index))
    if wrong:  # figures are those of the scheme as it is: nothing is to be computed of such options
        choice = replace(choice, options={}, keep=())
    recipe = choice.recipe(asked.calibration)
    made, size, bits = sizes.predicted(shape, choice.scheme, recipe, asked.tp)
    support = choice.scheme.support(asked.device)
    data = _needs_data(choice, recipe)
    job_memory = sizes.job_memory(shape, asked.calibration.samples, asked.calibration.tokens, data=data)
    disk = 2 * size  # finished layers, and the files made of them
    problems = [
        *_gate_problems(choice, f"schemes.{index}.gate"),
        *(wrong or _recipe_problems(choice, recipe, shape, index)),
        *_shard_problems(choice, recipe, shape, asked.tp),
        *_growth_problems(choice, base, size),
        *_support_problems(choice, support, asked),
        *_room_problems(job_memory, disk),
    ]
    return {
        "scheme": choice.scheme.name,
        "size_bytes": size,
        "base_bytes": base.size_bytes,
        "memory_bytes": sizes.resident(made, asked.device.kind, size),
        "bits": round(bits, 4),
        "job_memory_bytes": job_memory,
        "disk_bytes": disk,
        "seconds": _seconds(base, shape, choice),
        "support": support,
        "gate": choice.limits(shape.parameters),
        "problems": problems,
    }


def _seconds(base: Version, shape: ModelShape, choice: Choice) -> float | None:
    """By the team's last job of that scheme, measuring included, in proportion to the parameters."""
    past = Quantization.objects.filter(base__model__team=base.model.team_id, scheme=choice.scheme.name)
    known = past.filter(report__seconds__gt=0, base__shape__parameters__gt=0).order_by("-created_at")
    found = known.values_list("figures__seconds", "report__seconds", "base__shape__parameters").first()
    return None if found is None else round((found[0] or found[1]) * shape.parameters / found[2], 1)


def _needs_data(choice: Choice, recipe: dict[str, Any]) -> bool:
    maker = choice.scheme.maker
    if isinstance(maker, TellsNeeds):
        return maker.needs_data(recipe)
    return bool(choice.scheme.about["needs_data"])


def _problem(field: str, message: str, proposal: str = "", *, code: str, severity: str = "error") -> dict[str, Any]:
    return {"code": code, "severity": severity, "field": field, "message": message, "proposal": proposal}


def _gate_problems(choice: Choice, field: str) -> Iterator[dict[str, Any]]:
    for name, limit in (choice.gate or {}).items():
        if name not in BETTER:
            yield _problem(
                field, f"There is no figure {name!r}.", f"Limits are of {', '.join(BETTER)}.", code="unknown_figure"
            )
        elif (
            not math.isfinite(limit)
            or limit < 0
            or (name == "same_top" and limit > 1)
            or (name == "perplexity_ratio" and limit < 0.5)
        ):
            proposal = "same_top is a share from 0 to 1; perplexity_ratio is 1 where nothing is lost."
            yield _problem(field, f"{name} can't be limited to {limit:g}.", proposal, code="bad_limit")


def _option_problems(choice: Choice, calibration: Calibration, index: int) -> Iterator[dict[str, Any]]:
    """Options that are no options: of another name or type, or asked for in another place."""
    field = f"schemes.{index}.options"
    for name, place in ASKED_ELSEWHERE.items():
        if name in choice.options:
            place = f"schemes.{index}.{place}" if name == "scheme" else place
            yield _problem(f"{field}.{name}", f"{name} is no option.", f"Give it as {place}.", code="bad_option")
    recipe = choice.recipe(calibration)
    for schema in (choice.scheme.maker.spec_schema(), _READ_HERE):
        error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(recipe))
        if error is not None:
            where = ".".join(map(str, error.absolute_path))
            rows = ASKED_ELSEWHERE.get(where, "") if where not in choice.options else ""
            yield _problem(rows or f"{field}.{where}".rstrip("."), f"{error.message}.", code="bad_option")
            return
    kept = choice.options.get("keep", [])
    if len(kept) > MOST_KEPT:
        message = f"{len(kept):,} layers are named; at most {MOST_KEPT} are taken."
        yield _problem(f"{field}.keep", message, "Name several at once by a pattern with *.", code="bad_option")
    for at, pattern in enumerate(kept):
        if len(pattern) > LONGEST_KEPT:
            message = f"It has {len(pattern):,} characters; at most {LONGEST_KEPT} are taken."
            yield _problem(f"{field}.keep.{at}", message, code="bad_option")


def _recipe_problems(choice: Choice, recipe: dict[str, Any], shape: ModelShape, index: int) -> Iterator[dict[str, Any]]:
    told = {name: getattr(shape, name) for name in shape.__struct_fields__}
    for found in choice.scheme.maker.problems(recipe, told, 1):
        field = f"schemes.{index}.options.{found['field']}"
        yield _problem(field, _sentence(found["reason"]), found["hint"], code="does_not_fit")


def _shard_problems(choice: Choice, recipe: dict[str, Any], shape: ModelShape, tp: int) -> Iterator[dict[str, Any]]:
    """vllm's issue 13640: it refuses such a model when it is served; here it is said before the hours."""
    if choice.scheme.about["weights"] == sizes.UNCHANGED:
        return
    group = sizes.group_of(shape, recipe, tp) if choice.scheme.grouped else 0
    block = BLOCK if "blocks of" in choice.scheme.about["weights"] else None
    for sentence in shard_refusals(shape, tp, group=group, block=block):
        message, _, proposal = sentence.partition("; ")
        proposal = _sentence(proposal) if proposal else "Choose another number of GPUs."
        yield _problem("tp", message if message.endswith(".") else f"{message}.", proposal, code="tp_does_not_divide")


def _growth_problems(choice: Choice, base: Version, size: int) -> Iterator[dict[str, Any]]:
    """The blocks of a GGUF file are few bits, too; a version that is made of them is for other kernels."""
    if size <= base.size_bytes or choice.scheme.about["weights"] == sizes.UNCHANGED:
        return
    if base.format == "gguf" and base.shape.get("quantized_parameters"):
        message = f"Larger than the base, whose files are in {base.quantization} blocks already."
        yield _problem("schemes", message, code="grows", severity="info")


def _support_problems(choice: Choice, support: dict[str, Any], asked: Asked) -> Iterator[dict[str, Any]]:
    if support["level"] == "supported":
        return
    others = [each.scheme.label for each in asked.choices if each.scheme.support(asked.device)["level"] == "supported"]
    if not others:
        known = (each for each in schemes() if each.about["weights"] != sizes.UNCHANGED)
        others = [each.label for each in known if each.support(asked.device)["level"] == "supported"]
    proposal = f"{asked.device.name} computes in {', '.join(others[:3])}." if others else "Choose another device."
    if support["level"] == "unsupported":
        message = f"{asked.device.name} can't serve {choice.scheme.label}. {support['reason']}"
        yield _problem("device", message, proposal, code="unsupported_device")
    else:
        message = f"{choice.scheme.label} brings no speed on {asked.device.name}. {support['reason']}"
        yield _problem("device", message, proposal, code="slow_device", severity="warning")


def _room_problems(memory: int, disk: int) -> Iterator[dict[str, Any]]:
    """Of the job, on the node with most room: any may take it."""
    nodes = list(Node.objects.exclude(heartbeat_at=None))
    if not nodes:
        return
    free = max(node.disk_free for node in nodes)
    if 0 < free < disk:
        message = f"Making it takes {size_text(disk)} of disk; the node with most room has {size_text(free)}."
        yield _problem("schemes", message, "Delete versions that nobody uses, or move the store.", code="disk_full")
    available = max(node.memory_available for node in nodes)
    if 0 < available < memory:
        message = (
            f"Making it may take {size_text(memory)} of memory; the node with most has {size_text(available)} free."
        )
        proposal = "Take fewer or shorter calibration rows, or stop an engine."
        yield _problem("calibration.samples", message, proposal, code="little_memory", severity="warning")


def _calibration(calibration: Calibration, team: Team, makers: Sequence[object]) -> dict[str, Any]:
    """Rows that the text can give, as far as its bytes tell; the job counts tokens itself, and refuses with numbers."""
    problems = []
    samples = calibration.samples
    size, name, field = None, "", "calibration.corpus"
    if calibration.corpus is not None:
        size, name = calibration.corpus.blob.size, str(calibration.corpus)
    elif calibration.source == "gateway":
        kept = traffic.kept(team)
        size, name, field = kept.size, f"The kept traffic of {kept.keys} consenting keys", "calibration.source"
    elif own := [maker.texts_bytes() for maker in makers if isinstance(maker, BringsTexts)]:
        size, name, field = min(own), "The built-in text", "calibration.samples"
    if size is not None:
        most = size // (BYTES_PER_TOKEN * calibration.tokens)
        samples = min(samples, most)
        if samples < calibration.samples / 2:
            least = size_text(BYTES_PER_TOKEN * calibration.samples * calibration.tokens)
            message = (
                f"{name} has {size_text(size)}, enough for about {most:,} rows of {calibration.tokens:,} tokens; "
                f"{calibration.samples:,} are asked for."
            )
            proposal = f"At least {least} of text are needed; or ask for fewer or shorter rows."
            problems.append(_problem(field, message, proposal, code="too_little_data"))
    return {"samples": samples, "tokens": samples * calibration.tokens, "problems": problems}


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else f"{text}."
