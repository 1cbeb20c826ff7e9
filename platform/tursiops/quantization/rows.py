"""Rows as the API shows them."""

from __future__ import annotations

import math
from typing import Any

from tursiops.deployments.specs import shape_of
from tursiops.jobs.serializers import JobSerializer
from tursiops.quantization import progress, selectors, sizes
from tursiops.quantization.asked import HEAD
from tursiops.quantization.devices import CPU
from tursiops.quantization.models import Quantization
from tursiops.registry.models import Version

FIGURES = (
    "size_bytes",
    "memory_bytes",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "perplexity",
    "perplexity_ratio",
    "same_top",
    "kl",
    "dtype",
    "measured_on",
)
_OF_LAYER = ("loss", "rtn_loss", "damping", "sqnr_db", "local_error", "accumulated_error", "bits", "seconds")
FALLBACK = "rtn_fallback"


def row(item: Quantization) -> dict[str, Any]:
    recipe = item.recipe
    hidden = ("scheme", "keep", "samples", "tokens")
    return {
        "id": str(item.pk),
        "base": str(item.base_id),
        "scheme": item.scheme,
        "scheme_label": item.scheme_label,
        "options": {name: value for name, value in recipe.items() if name not in hidden},
        "keep": [name for name in recipe.get("keep", []) if name != HEAD],
        "calibration": item.calibration,
        "gate": item.gate,
        "device": item.device,
        "tp": item.tp,
        "job": JobSerializer(item.job).data,
        "version": str(item.version_id) if item.version_id else None,
        "version_label": str(item.version or ""),
        "version_state": item.version.state if item.version else "",
        "progress": progress.shown(item.job),
        "figures": figures(item.figures),
        "base_figures": figures(item.base_figures),
        "verdict": item.verdict or None,
        "rules": item.rules,
        "fallbacks": int(item.figures.get("fallbacks") or 0),
        "reason": item.job.reason,
        "deploy": {
            "device": "cpu" if item.device == CPU else "cuda",
            "gpus_per_replica": item.tp,
            "options": item.figures.get("serve_options") or {},
        },
        "created_at": item.created_at,
    }


def detail(item: Quantization) -> dict[str, Any]:
    """With what was found of each layer: by the job's report, or so far."""
    report = item.report
    return {
        **row(item),
        "layers": [_layer(each) for each in report.get("layers") or progress.layers(item.job)],
        "sensitivity": _sensitivity(item),
        "report": {name: value for name, value in report.items() if name not in ("layers", "files")},
        "comparison": selectors.comparison(item),
    }


def _layer(found: dict[str, Any]) -> dict[str, Any]:
    """One product, or so far one layer. local_error: |quantized − original| / |original| of its outputs, given what its
    inputs were when it was quantized: the root of the loss, which is of squares."""
    told = {**dict.fromkeys(_OF_LAYER), **{name: found[name] for name in _OF_LAYER if name in found}}
    if told["local_error"] is None and told["loss"] is not None:
        told["local_error"] = math.sqrt(max(0.0, told["loss"]))
    method = str(found.get("method", ""))
    return {
        **told,
        "index": int(found.get("index", 0)),
        "name": str(found.get("name", "")),
        "scheme": str(found.get("scheme", "")),
        "method": method,
        "fallback": str(found.get("note") or method) if method == FALLBACK else "",
    }


def _sensitivity(item: Quantization) -> list[dict[str, Any]]:
    """Products by what each loses alone in 4 bits, with the bytes that it takes in 16."""
    ranking = (item.report.get("mixed") or {}).get("ranking") or []
    taken = sizes.products(shape_of(item.base)) if ranking else {}
    return [{"layer": each["name"], "kl": each["kl"], "bytes": taken.get(each["name"], 0)} for each in ranking]


def base_figures(base: Version, made: list[Quantization]) -> dict[str, Any]:
    """Of the newest job that measured the base; else its size alone."""
    measured: list[dict[str, Any]] = [item.base_figures for item in reversed(made) if item.base_figures]
    found = next(iter(measured), {})
    return {**dict.fromkeys(FIGURES), **found, "size_bytes": base.size_bytes}


def figures(found: dict[str, Any]) -> dict[str, Any] | None:
    return {name: found.get(name) for name in FIGURES} if found else None
