"""The finished checkpoint: a folder that transformers, vLLM, SGLang and our engine read, in compressed-tensors' layout.

Finished layers are copied as they lie on disk, the rest comes from the source, a tensor at a time.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.names import expected_shapes, file_name, layout_of
from engines.native.loader.tokenizer import TokenizerFacts
from engines.native.loader.weights import Weights
from engines.native.quant import packing
from engines.native.quant.scheme import ActivationScheme, KvScheme, LinearScheme, WeightScheme, class_of
from engines.native.vocabulary import tensor_files, tokenizer_files
from engines.native.vocabulary.folder import INDEX, Folder, Progress
from engines.native.vocabulary.hf_export import DTYPES, Export, bytes_of
from engines.native.vocabulary.tensor_files import Entry
from plugins.quantization.spec import Options
from plugins.quantization.work import GOES_ON, Finished, WorkFolder, writing

FORMAT_VERSION = "0.19.0"
"""Of compressed-tensors, whose layout this is."""
_STORED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class Target:
    """What the written checkpoint is: its names, its 16-bit type, its configuration. A context manager: it has the
    source open."""

    def __init__(self, files: ModelFiles, facts: TokenizerFacts, dtype: str) -> None:
        """dtype: of what is not quantized; "auto" = as the source has it, bfloat16 for the blocks of a GGUF file."""
        self._files, self._facts = files, facts
        self._weights = Weights(files)
        self._export: Export | None = None
        stored = files.tensors["embed.weight"].type
        if files.format == "gguf":
            self.dtype = _STORED.get(stored, "bfloat16") if dtype == "auto" else dtype
            self._export = Export(files, self._weights, self.dtype)
            self.config = self._export.config
        else:
            self.dtype = _STORED[stored] if dtype == "auto" else dtype
            self.config = files.config
        self._layout = layout_of("safetensors", self.config.architecture)

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._weights.__exit__()

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype][1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Our name → shape of every tensor."""
        return expected_shapes(self.config, self._layout.fused)

    def theirs(self, name: str) -> str:
        """The checkpoint's name of our tensor."""
        return file_name(name, "safetensors", self.config.architecture)

    def modules(self) -> dict[str, str]:
        """The checkpoint's name of each matrix of the layers → ours, both without ".weight"."""
        named = [name for name, shape in self.shapes().items() if name.startswith("layers.") and len(shape) == 2]
        return {self.theirs(name).removesuffix(".weight"): name.removesuffix(".weight") for name in named}

    def config_json(self, quantization: dict[str, Any] | None) -> dict[str, Any]:
        """Raises ChildError("not_exportable") for a GGUF model that no config.json can say."""
        if self._export is not None:
            written = self._export.config_json(self._facts, self.config.vocab)
        else:
            written = dict(read_json(self._files.paths, "config.json"))
            for name in ("torch_dtype", "compression_config"):  # older names of what is written here
                written.pop(name, None)
            written["dtype"] = self.dtype
        return written if quantization is None else {**written, "quantization_config": quantization}

    def entry(self, name: str, shape: tuple[int, ...]) -> Entry:
        """Our tensor `name`, as it is in the source but for its type. Norms and biases keep theirs: they are small."""
        if self._export is not None:
            return self._export.entry(name, shape)
        found = self._files.tensors[name].type
        wanted = self.dtype if len(shape) > 1 and found in _STORED else _STORED.get(found, self.dtype)
        stored, dtype = DTYPES[wanted]

        def chunks() -> Iterator[memoryview]:
            yield bytes_of(self._weights.read(name, dtype))

        return Entry(self.theirs(name), stored, shape, torch.Size(shape).numel() * dtype.itemsize, chunks)

    def write_tokenizer(self, folder: Folder) -> None:
        """And what else lies beside the weights of a safetensors model: its generation defaults, its own records."""
        if self._files.format == "gguf":
            tokenizer_files.from_gguf(self._files, self._facts, (), folder.write_text)
            return
        for name, path in self._files.paths.items():
            weights = name.endswith((".safetensors", ".bin", ".gguf", ".pth"))
            if name not in (INDEX, "config.json") and not weights and "/" not in name:
                folder.write_bytes(name, path.read_bytes())


def assemble(target: Target, done: WorkFolder, staging: Path, kv: KvScheme | None, progress: Progress) -> Folder:
    """Everything in `staging`, which is there when it is whole: it is made beside it. Raises ChildError: disk_full,
    not_exportable."""
    making = staging.with_name(f"{staging.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    folder = Folder(making)
    try:
        layers = [done.read(index) for index in range(target.config.layers)]
        table = done.table()
        parts = [*layers, *([table] if table else [])]
        schemes = {name: scheme for part in parts for name, scheme in part.schemes.items()}
        entries = list(_entries(target, parts))
        with writing(making, sum(entry.nbytes for entry in entries)):
            folder.write_json("config.json", target.config_json(quantization_config(schemes, target.modules(), kv)))
            target.write_tokenizer(folder)
            folder.write_shards(entries, progress)
    except BaseException:  # a cancel, too, leaves nothing half written
        shutil.rmtree(making, ignore_errors=True)
        raise
    return placed(folder, staging)


def write_unquantized(target: Target, folder: Folder, progress: Progress, hint: str = GOES_ON) -> None:
    """The model itself, as transformers reads it, in the target's type. hint: where the disk is full. Raises
    ChildError: disk_full, not_exportable."""
    entries = [target.entry(name, shape) for name, shape in target.shapes().items()]
    with writing(folder.path, sum(entry.nbytes for entry in entries), hint):
        folder.write_json("config.json", target.config_json(None))
        target.write_tokenizer(folder)
        folder.write_shards(entries, progress)


def written_bytes(options: Options, target: Target, group: int) -> int:
    """Of the new version's weights, about."""
    total = 0
    for name, shape in target.shapes().items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        width = target.torch_dtype.itemsize
        if name.startswith("layers.") and len(shape) == 2 and options.quantizes_weights:
            bits = {"w4a16_gptq": 4, "w4a16_awq": 4}.get(options.scheme, 8)
            scale = 4 if target.dtype == "float16" else width  # scales beside float16 are float32
            total += size * bits // 8 + (size // group if group else shape[0]) * (scale + 1)
        elif name == "embed.weight" and options.embedding_format == "int8":
            total += size + shape[0] * width
        else:
            total += size * width
    return total


def parameters(target: Target) -> int:
    return sum(map(math.prod, target.shapes().values()))


def placed(folder: Folder, staging: Path) -> Folder:
    """A whole folder, under its name in one step."""
    if staging.exists():
        shutil.rmtree(staging)
    folder.path.rename(staging)
    return Folder(staging, folder.digests, folder.kept)


def _entries(target: Target, parts: Iterable[Finished]) -> Iterator[Entry]:
    """In the order in which a loader reads them."""
    made: dict[str, list[Entry]] = {}
    for part in parts:
        for entry in tensor_files.entries_of(part.path)[0]:
            made.setdefault(entry.name.rpartition(".")[0], []).append(entry)
    for name, shape in target.shapes().items():
        theirs = target.theirs(name)
        module, _, kind = theirs.rpartition(".")
        own = made.get(module, [])
        if kind == "weight":
            yield from own
        if not any(entry.name == theirs or (kind == "weight" and _is_weight(entry)) for entry in own):
            yield target.entry(name, shape)
        attention = module.rpartition(".")[0]
        if name.endswith(".o.weight"):  # scales of the cache lie beside the projections
            yield from made.get(attention, [])


def _is_weight(entry: Entry) -> bool:
    """Or what it is packed in."""
    return entry.name.rpartition(".")[2].startswith("weight")


# -- quantization_config ----------------------------------------------------------------------------------------


def quantization_config(
    schemes: Mapping[str, LinearScheme], modules: Iterable[str], kv: KvScheme | None
) -> dict[str, Any] | None:
    """As compressed-tensors reads it. schemes: module → how it is kept; modules: all matrices of the layers. None where
    nothing is quantized."""
    if not schemes and kv is None:
        return None
    groups: dict[LinearScheme, list[str]] = {}
    for module, scheme in schemes.items():
        groups.setdefault(scheme, []).append(module)
    of_layers = [scheme for scheme, names in groups.items() if any(name in set(modules) for name in names)]
    written: dict[str, dict[str, Any]] = {}
    layouts: list[str] = []
    for number, (scheme, names) in enumerate(sorted(groups.items(), key=lambda item: -len(item[1]))):
        layout = packing.layout_for(scheme)
        layouts.append(layout)
        if [scheme] == of_layers:  # then the class says it, and what is kept is in `ignore`; an embedding is named
            names = ["Linear", *(name for name in names if class_of(name) != "Linear")]
        written[f"group_{number}"] = {"targets": names, **scheme_json(scheme)}
    kept = [module for module in modules if module not in schemes]
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": "mixed-precision" if len(set(layouts)) > 1 else (layouts or ["dense"])[0],
        "config_groups": written,
        "ignore": ["lm_head", *kept] if len(of_layers) <= 1 else ["lm_head"],
        "kv_cache_scheme": kv and kv_json(kv),
        "global_compression_ratio": None,
        "version": FORMAT_VERSION,
    }


def scheme_json(scheme: LinearScheme) -> dict[str, Any]:
    """A group of config_groups, without what it is of."""
    return {
        "weights": _weights(scheme.weight),
        "input_activations": scheme.activations and _activations(scheme.activations),
        "output_activations": None,
        "format": packing.layout_for(scheme),
    }


def _weights(scheme: WeightScheme) -> dict[str, Any]:
    return {
        "num_bits": scheme.bits,
        "type": scheme.kind,
        "symmetric": scheme.symmetric,
        "strategy": scheme.strategy,
        "group_size": scheme.group or None,
        "block_structure": list(scheme.block) if scheme.block else None,
        "actorder": scheme.actorder or None,
        "dynamic": False,
    }


def _activations(scheme: ActivationScheme) -> dict[str, Any]:
    return {
        "num_bits": scheme.bits,
        "type": scheme.kind,
        "symmetric": True,
        "strategy": scheme.strategy,
        "group_size": scheme.group or None,
        "dynamic": scheme.dynamic,
    }


def kv_json(scheme: KvScheme) -> dict[str, Any]:
    name = {"head": "attn_head"}.get(scheme.strategy, scheme.strategy)
    return {
        "num_bits": scheme.bits,
        "type": scheme.kind,
        "symmetric": True,
        "strategy": name,
        "dynamic": False,
    }
