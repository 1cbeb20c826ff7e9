"""The layout that lets a folder be named like a standard module. See DESIGN: `platform/` is a source root."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_platform_folder_is_not_a_package():
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert not (ROOT / "tests" / "platform" / "__init__.py").exists()


def test_standard_platform_module_wins_from_the_root():
    done = subprocess.run(
        [sys.executable, "-c", "import platform, uuid; print(platform.python_version())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == sys.version.split()[0]


def test_no_child_of_platform_is_named_like_a_standard_module():
    children = {path.stem for path in (ROOT / "platform").iterdir() if not path.name.startswith((".", "__"))}
    assert "tursiops" in children
    assert not children & sys.stdlib_module_names


def test_top_level_names_belong_to_us_alone():
    owners = importlib.metadata.packages_distributions()
    for name in ("tursiops", "engines", "plugins", "evaluation"):
        assert set(owners.get(name, ["tursiops"])) == {"tursiops"}, f"{name} is also shipped by {owners[name]}"
