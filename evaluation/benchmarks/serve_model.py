"""A model's files without a model: configuration, a tokenizer with a word for every id, and weights that are a header
over a hole in the file. For benchmarks that serve random weights through the real processes."""

from __future__ import annotations

import json
import math
import shutil
import struct
from importlib import resources
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from engines.native.loader.hf_config import decoder_config
from engines.native.loader.names import expected_shapes, layout_of
from evaluation.benchmarks import shapes

TINY = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}  # fmt: skip


def write(shape: str, folder: Path, layers: int = 0) -> dict[str, str]:
    """Write the files of `shape` ("llama8b", "qwen06b", "tiny"), with another number of layers where it is given;
    returns file name → path."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    if shape == "tiny":
        config.write_text(json.dumps(TINY))
    else:
        with resources.as_file(resources.files(shapes).joinpath(f"{shape}.json")) as path:
            shutil.copy(path, config)
    if layers:
        config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": layers}))
    paths = [config, _tokenizer(json.loads(config.read_text())["vocab_size"], folder), _weights(config, folder)]
    return {path.name: str(path) for path in paths}


def _tokenizer(vocab: int, folder: Path) -> Path:
    """One byte per id at first, then words of a blank and three letters or more."""
    alphabet = sorted(ByteLevel.alphabet())
    words = (f"Ġ{_letters(number)}" for number in range(vocab - len(alphabet)))
    tokenizer = Tokenizer(BPE(vocab={piece: index for index, piece in enumerate([*alphabet, *words])}, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def _letters(number: int) -> str:
    text = ""
    for _ in range(4):
        number, letter = divmod(number, 26)
        text += chr(ord("a") + letter)
    return text


def _weights(config: Path, folder: Path) -> Path:
    shape = decoder_config(json.loads(config.read_text()))
    layout = layout_of("safetensors", shape.architecture)
    header: dict[str, object] = {}
    at = 0
    for name, size in expected_shapes(shape, layout.fused).items():
        end = at + 2 * math.prod(size)
        header[layout.name(name)] = {"dtype": "BF16", "shape": list(size), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return path
