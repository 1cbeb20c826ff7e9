"""The console's own checks, run where its packages are installed: types, lint, logic tests, and API types in step."""

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


def npm(*arguments: str) -> None:
    done = subprocess.run([str(NPM), *arguments], cwd=WEBUI, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_types_and_lint():
    npm("run", "check")


def test_logic():
    npm("test")


def test_api_types_are_those_of_the_committed_schema(tmp_path):
    made = tmp_path / "schema.ts"
    npm("exec", "--", "openapi-typescript", "../docs/openapi.yaml", "-o", str(made))
    assert made.read_text() == (WEBUI / "src" / "api" / "schema.ts").read_text(), "run: cd webui && npm run types"
