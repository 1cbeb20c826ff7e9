"""Which files of a folder or repository make the model. Only formats that hold data and no code are taken: nothing
that is unpickled (.bin, .pt, .pth, .ckpt), and no Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from engines.protocol import ChildError

SAFETENSORS_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
    "LICENSE*",
    "README.md",  # its front matter names the licence
    "modules.json",  # of an embedding model: its steps, the longest text, how a vector is made of its tokens
    "sentence_*_config.json",
    "config_sentence_transformers.json",
)
POOLING = "*_Pooling/config.json"
"""The one file of a model that lies in a folder."""
UNSAFE = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".msgpack", ".h5")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class Choice:
    format: str  # gguf | safetensors
    names: list[str]


def choose(names: Iterable[str], wanted: str = "") -> Choice:
    """The files to take of `names`, which may lie in folders; `wanted` is one GGUF file by name.

    Raises ChildError: unknown_file, ambiguous (several models), unsafe_format, missing_file, no_weights.
    """
    names = sorted(names)
    if wanted:
        return Choice("gguf", [_wanted(names, wanted)])
    top = [name for name in names if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    if weights:
        pooling = [name for name in names if name.count("/") == 1 and fnmatch(name, POOLING)]
        return Choice("safetensors", sorted([*_safetensors(top, weights), *pooling]))
    gguf = [name for name in names if name.endswith(".gguf")]
    if gguf:
        return Choice("gguf", _gguf(gguf))
    unsafe = [name for name in names if name.endswith(UNSAFE)]
    if unsafe:
        raise ChildError(
            "unsafe_format",
            f"the weights are in {unsafe[0]}, a format that runs code when it is loaded",
            "Choose a repository or folder with safetensors or GGUF files, or convert it.",
        )
    raise ChildError("no_weights", "there is no .gguf and no .safetensors file", "Check the name or the folder.")


def stored_name(name: str) -> str:
    """What a file is called in a version, which has no folders: its own name, but for the pooling's."""
    return name.replace("/", "__") if fnmatch(name, POOLING) else name.rpartition("/")[2]


def _wanted(names: list[str], wanted: str) -> str:
    if not wanted.endswith(".gguf"):
        raise ChildError("unknown_file", f"{wanted} is no GGUF file", "Name a .gguf file, or none for safetensors.")
    if wanted not in names:
        raise ChildError("unknown_file", f"there is no {wanted}", f"There are: {_few(names, '.gguf')}.")
    return wanted


def _safetensors(top: list[str], weights: list[str]) -> list[str]:
    if "config.json" not in top:
        raise ChildError(
            "missing_file",
            "config.json is missing beside the safetensors files",
            "An adapter (LoRA) alone is no model; give the folder of the whole model.",
        )
    main = [name for name in weights if fnmatch(name, "model*.safetensors")]  # others repeat the same weights
    companions = [name for name in top if any(fnmatch(name, pattern) for pattern in SAFETENSORS_COMPANIONS)]
    return sorted({*(main or weights), *companions})


def _gguf(files: list[str]) -> list[str]:
    sets = {_SHARD.sub("", name) for name in files}
    if len(sets) > 1:
        raise ChildError(
            "ambiguous",
            f"there are {len(sets)} GGUF models: {_few(files, '.gguf')}",
            "Name one of them: owner/name:file.gguf for a hub repository, the file itself for a path.",
        )
    return files


def _few(names: list[str], suffix: str) -> str:
    found = [name for name in names if name.endswith(suffix)]
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "") or "none"
