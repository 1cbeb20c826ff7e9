"""The console's API types are those of the committed schema. Its types, lint and logic tests: tests/test_quality.py."""

import shutil
import subprocess
from pathlib import Path

import pytest

WEBUI = Path(__file__).resolve().parents[3] / "webui"
NPM = shutil.which("npm")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NPM is None or not (WEBUI / "node_modules").is_dir(), reason="webui needs Node and `npm ci`"),
]


def test_api_types_are_those_of_the_committed_schema(tmp_path):
    made = tmp_path / "schema.ts"
    done = subprocess.run(
        [str(NPM), "exec", "--", "openapi-typescript", "../docs/openapi.yaml", "-o", str(made)],
        cwd=WEBUI, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert made.read_text() == (WEBUI / "src" / "api" / "schema.ts").read_text(), "run: cd webui && npm run types"
