"""How a model's tokens become one vector or one score: from the files that sentence-transformers and transformers
write beside the weights. What would be computed otherwise than it was trained is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import read_json
from engines.native.pooling.config import ENCODERS, Head, Pool, Task
from engines.native.pooling.task import MODULES

_POOLS = {
    "mean": Pool.MEAN,
    "cls": Pool.CLS,
    "lasttoken": Pool.LAST,
    "pooling_mode_mean_tokens": Pool.MEAN,
    "pooling_mode_cls_token": Pool.CLS,
    "pooling_mode_lasttoken": Pool.LAST,
}
_STEPS = ("Transformer", "Pooling", "Normalize")
LENGTHS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")
FLAT = "__"
"""The model registry keeps files without folders: 1_Pooling/config.json is 1_Pooling__config.json there."""


def head_of(task: Task, config: dict[str, Any], paths: dict[str, Path]) -> Head:
    """`config`: config.json. Raises BadModel("unknown_architecture"), naming the key."""
    return _score_head(config) if task is Task.SCORE else _embed_head(config, paths)


def _embed_head(config: dict[str, Any], paths: dict[str, Path]) -> Head:
    lengths = next((read_json(paths, name) for name in LENGTHS if name in paths), {})
    dimensions = config.get("matryoshka_dimensions") or ()
    pool, normalize = _modules(config, paths)
    return Head(
        task=Task.EMBED,
        pool=pool,
        normalize=normalize,
        max_tokens=int(lengths.get("max_seq_length") or 0),
        lower=bool(lengths.get("do_lower_case", False)),
        matryoshka=bool(config.get("is_matryoshka")) or bool(dimensions),
        dimensions=tuple(sorted(int(length) for length in dimensions)),
    )


def _modules(config: dict[str, Any], paths: dict[str, Path]) -> tuple[Pool, bool]:
    """Pooling, and whether vectors are normalised. Without modules.json: the mean for encoders, as
    sentence-transformers does, the last token for decoders, the only one that has seen the text; normalised."""
    if MODULES not in paths:
        return (Pool.MEAN if config.get("model_type") in ENCODERS else Pool.LAST), True
    steps = _list(paths)
    kinds = [str(step.get("type", "")).rsplit(".", 1)[-1] for step in steps]
    for kind in kinds:
        if kind not in _STEPS:
            raise BadModel(
                "unknown_architecture", f"modules.json: the step {kind!r} is not served", f"known: {', '.join(_STEPS)}"
            )
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise BadModel("unknown_architecture", f"modules.json: {kinds} do not begin with Transformer and Pooling")
    return _pooling(str(steps[1].get("path", "")), paths), "Normalize" in kinds


def _list(paths: dict[str, Path]) -> list[dict[str, Any]]:
    try:
        steps = json.loads(paths[MODULES].read_bytes())
    except ValueError as error:
        raise BadModel("bad_magic", f"{MODULES} is no JSON: {error}") from error
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise BadModel("bad_magic", f"{MODULES} is no list of steps")
    return steps


def _pooling(folder: str, paths: dict[str, Path]) -> Pool:
    name = f"{folder}/config.json"
    flat = name.replace("/", FLAT)
    config = read_json(paths, flat if flat in paths else name)
    modes = config.get("pooling_mode")  # one name or several; before sentence-transformers 6, a switch for each
    if modes is None:
        modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    asked = [modes] if isinstance(modes, str) else [str(mode) for mode in modes]
    if len(asked) != 1 or asked[0] not in _POOLS:
        raise BadModel(
            "unknown_architecture",
            f"{name}: pooling by {' and '.join(asked) or 'nothing'} is not served",
            "known, one at a time: mean, cls, lasttoken",
        )
    if config.get("include_prompt") is False:
        raise BadModel("unknown_architecture", f"{name}: include_prompt is false; a prompt is part of its text here")
    return _POOLS[asked[0]]


def _score_head(config: dict[str, Any]) -> Head:
    labels = _labels(config)
    if labels != 1:
        raise BadModel(
            "unknown_architecture",
            f"config.json: the classifier has {labels} labels; a cross-encoder that scores pairs has one",
        )
    if config.get("model_type") not in ENCODERS:
        raise BadModel(
            "unknown_architecture",
            f"config.json: model_type is {config.get('model_type')!r}",
            f"cross-encoders are served of the types {', '.join(ENCODERS)}",
        )
    return Head(task=Task.SCORE, pool=Pool.CLS, labels=1, sigmoid=_activation(config) == "Sigmoid")


def _labels(config: dict[str, Any]) -> int:
    """As transformers counts them; its default is two."""
    for key in ("id2label", "label2id"):
        if isinstance(config.get(key), dict):
            return len(config[key])
    return int(config.get("num_labels") or 2)


def _activation(config: dict[str, Any]) -> str:
    """What the score passes through: as the cross-encoder's config says, a sigmoid where it says nothing."""
    said = config.get("sentence_transformers") or {}
    name = said.get("activation_fn") or config.get("sbert_ce_default_activation_function") or "Sigmoid"
    short = str(name).rsplit(".", 1)[-1].removesuffix("()")
    if short not in ("Sigmoid", "Identity"):
        raise BadModel("unknown_architecture", f"config.json: the activation {name} of the score is not served")
    return short
