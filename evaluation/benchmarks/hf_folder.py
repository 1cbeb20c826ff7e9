"""A GGUF model as a folder that transformers reads, with the very numbers that our engine computes with in float32.

    python -m evaluation.benchmarks.hf_folder MODEL.gguf FOLDER

For comparisons of two engines on the same weights: tensors are dequantized by our reader and written as float32; the
tokenizer is the one that our engine makes of the file. Names, order of rows and config.json are those of `Export`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.names import file_name
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.loader.weights import Weights
from engines.native.vocabulary.hf_export import Export


def export(model: Path, folder: Path) -> Path:
    """Writes config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json; returns
    `folder`. Raises ChildError for what cannot be said in a config.json, BadModel for a file that is no model."""
    files = open_model("gguf", {model.name: str(model)})
    with Weights(files) as weights:
        made = Export(files, weights, "float32")
        names = {name: file_name(name, "safetensors", made.config.architecture) for name in made.shapes()}
        state = {written: made.tensor(name) for name, written in names.items()}
        _write(folder / "config.json", write_tokenizer(files, made, folder))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_tokenizer(files: ModelFiles, made: Export, folder: Path) -> dict[str, Any]:
    """Writes all but config.json and the weights; returns what config.json holds. Raises as `export`."""
    tokenizer, facts = load_tokenizer(files)
    eos = list(facts.eos_ids)
    config = made.config_json(facts, files.config.vocab)  # raises before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "generation_config.json", {"do_sample": False, "eos_token_id": eos})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None if facts.bos_id is None else tokenizer.id_to_token(facts.bos_id),
            "eos_token": tokenizer.id_to_token(eos[0]),
            "chat_template": facts.chat_template,
            "clean_up_tokenization_spaces": False,
            "model_max_length": files.config.context_length,
        },
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return config


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(export(options.model, options.folder))


if __name__ == "__main__":
    main()
