"""The files of a model with a grown vocabulary, in a folder: safetensors, config.json, tokenizer.json.

Of a safetensors model only what changes is written; its other files stay the blobs that they are. A GGUF model becomes
a safetensors model, since GGUF has no words for "between words only" (`single_word`) of an added token, and a block
format would round the new rows. Work that was cut off goes on: a tensor file that is whole is not written again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engines.api import size_text
from engines.native.loader.model_files import ModelFiles, read_json
from engines.native.loader.names import layout_of
from engines.native.loader.tokenizer import TokenizerFacts
from engines.native.loader.weights import Weights
from engines.native.vocabulary import tensor_files, tokenizer_files
from engines.native.vocabulary.forms import Form
from engines.native.vocabulary.hf_export import Export, bytes_of
from engines.native.vocabulary.tables import grown
from engines.native.vocabulary.tensor_files import Entry
from engines.protocol import ChildError

SHARD = 4 * 2**30  # bytes
_TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
INDEX = "model.safetensors.index.json"

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Growth:
    """first: id of the first form's token. rows: of the grown embedding."""

    forms: Sequence[Form]
    first: int
    rows: int

    def table(self, old: torch.Tensor) -> torch.Tensor:
        return grown(old, self.first, [form.pieces for form in self.forms], self.rows)


@dataclass(slots=True)
class Folder:
    """digests: name → sha256 of the files written. kept: names of the base's files that are the new version's too."""

    path: Path
    digests: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        self.write_text(name, json.dumps(value, ensure_ascii=False, indent=1) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)
        self.digests[name] = hashlib.sha256(data).hexdigest()

    def write_tensors(
        self, name: str, entries: list[Entry], metadata: dict[str, str], wrote: Callable[[int], None]
    ) -> None:
        path = self.path / name
        if path.is_file():  # of an earlier attempt at the very same work
            with path.open("rb") as file:
                self.digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
            wrote(sum(entry.nbytes for entry in entries))
        else:
            self.digests[name] = tensor_files.write(path, entries, metadata, wrote)

    def write_shards(self, entries: list[Entry], progress: Progress) -> None:
        """All tensors of a model, in as many files as they need, with their index. Raises ChildError("disk_full")."""
        total = sum(entry.nbytes for entry in entries)
        _check_space(self.path, total)
        parts = _shards(entries)
        wrote = _counted(total, progress)
        for name, part in parts.items():
            self.write_tensors(name, part, {"format": "pt"}, wrote)
        if len(parts) > 1:
            places = {entry.name: name for name, part in parts.items() for entry in part}
            self.write_json(INDEX, {"metadata": {"total_size": total}, "weight_map": places})


def write(
    files: ModelFiles, facts: TokenizerFacts, growth: Growth, folder: Folder, dtype: str, progress: Progress
) -> None:
    """dtype: what a GGUF model's tensors become; "auto": the exact values. Raises ChildError: not_exportable,
    disk_full."""
    if files.gguf is not None:
        with Weights(files) as weights:
            _from_gguf(Export(files, weights, dtype), facts, growth, folder, progress)
        tokenizer_files.from_gguf(files, facts, growth.forms, folder.write_text)
        return
    _from_safetensors(files, growth, folder, progress)
    config = read_json(files.paths, "config.json")
    if config["vocab_size"] != growth.rows:
        folder.write_json("config.json", config | {"vocab_size": growth.rows})
    tokenizer_files.from_safetensors(files.paths, growth.first, growth.forms, folder.write_text)
    folder.kept = [name for name in files.paths if name not in folder.digests]


def _from_gguf(export: Export, facts: TokenizerFacts, growth: Growth, folder: Folder, progress: Progress) -> None:
    folder.write_json("config.json", export.config_json(facts, growth.rows))
    entries = []
    for name, shape in export.shapes().items():
        if name in ("embed.weight", "head.weight"):
            table = growth.table(export.tensor(name))
            entries.append(export.entry(name, tuple(table.shape), table))
        else:
            entries.append(export.entry(name, shape))
    folder.write_shards(entries, progress)


def _shards(entries: list[Entry]) -> dict[str, list[Entry]]:
    """File name → its tensors, in order, none larger than SHARD unless one tensor is."""
    parts: list[list[Entry]] = [[]]
    held = 0
    for entry in entries:
        if parts[-1] and held + entry.nbytes > SHARD:
            parts.append([])
            held = 0
        parts[-1].append(entry)
        held += entry.nbytes
    if len(parts) == 1:
        return {"model.safetensors": parts[0]}
    return {f"model-{number + 1:05}-of-{len(parts):05}.safetensors": part for number, part in enumerate(parts)}


def _from_safetensors(files: ModelFiles, growth: Growth, folder: Folder, progress: Progress) -> None:
    """The files that hold embedding or head are written again, with everything else in them as it is. A head that is
    there though it is tied grows too: other programs look at its shape."""
    layout = layout_of("safetensors", files.config.architecture)
    names = {layout.name("embed.weight"), layout.name("head.weight")}
    changed: dict[str, tuple[list[Entry], dict[str, str]]] = {}
    added = 0
    for shard, path in files.paths.items():
        if not shard.endswith(".safetensors"):
            continue
        entries, metadata = tensor_files.entries_of(path)
        if not names & {entry.name for entry in entries}:
            continue
        replaced = [_grown_entry(entry, growth) if entry.name in names else entry for entry in entries]
        added += sum(entry.nbytes for entry in replaced) - sum(entry.nbytes for entry in entries)
        changed[shard] = replaced, metadata
    total = sum(entry.nbytes for entries, _ in changed.values() for entry in entries)
    _check_space(folder.path, total)
    wrote = _counted(total, progress)
    for shard, (entries, metadata) in changed.items():
        folder.write_tensors(shard, entries, metadata, wrote)
    index = read_json(files.paths, INDEX, required=False)
    if index and added:
        about = index.get("metadata") or {}
        folder.write_json(INDEX, index | {"metadata": about | {"total_size": int(about.get("total_size", 0)) + added}})


def _grown_entry(entry: Entry, growth: Growth) -> Entry:
    data = bytearray()
    for chunk in entry.chunks():
        data += chunk
    table = growth.table(torch.frombuffer(data, dtype=_TORCH[entry.dtype]).view(entry.shape))
    return Entry(
        entry.name,
        entry.dtype,
        tuple(table.shape),
        table.numel() * table.element_size(),
        lambda: iter([bytes_of(table)]),
    )


def _counted(total: int, progress: Progress) -> Callable[[int], None]:
    done = 0

    def wrote(count: int) -> None:
        nonlocal done
        done += count
        progress(done / max(total, 1))

    return wrote


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ChildError(
            "disk_full",
            f"the new version needs {size_text(needed)} of disk; {size_text(free)} are free",
            "Free some space, or choose a smaller dtype.",
        )
