"""Environments of back ends: made once, over ours, from pinned packages; here from a folder in place of an index."""

import threading
import zipfile

import numpy
import pytest

from engines.protocol import ChildError
from plugins.quantization import environments
from plugins.quantization.environments import Environment

pytestmark = pytest.mark.slow
NUMPY = f"numpy=={numpy.__version__}"


def wheel(folder, name, version, code):
    """A package of one module."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip finds packages in, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setattr(environments, "root", lambda: tmp_path / "environments")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel(folder, "acme_first", "1.0", "value = 1\n")
    wheel(folder, "acme_second", "2.5", "import numpy, acme_first\nvalue = acme_first.value + 1\n")
    return folder


def acme(*more, imports=("acme_second",)):
    return Environment("acme", (NUMPY, "acme-first==1.0", *more), imports, 10**6)


def test_two_jobs_at_once_make_one_over_ours_and_what_is_lost_is_put_back(index):
    environment, said, made = acme("acme-second==2.5"), [], []

    def job():
        made.append(environments.ensure(environment, lambda share, text: said.append((share, text))))

    jobs = [threading.Thread(target=job) for _ in range(2)]
    for each in jobs:
        each.start()
    for each in jobs:
        each.join()
    assert made == [environment.python] * 2
    assert environment.ready
    assert sum("installing" in text for _, text in said) == 1
    shares = [share for share, text in said if "waiting" not in text]
    assert shares == sorted(shares)
    assert not any("numpy" in text for _, text in said), "what ours has in that version is not fetched"
    assert not list(environment.folder.glob("wheels/*"))
    said.clear()
    environments.ensure(environment, lambda share, text: said.append(text))
    assert said == [], "it is found again"

    (found,) = environment.folder.glob("env/lib/*/site-packages/acme_first-1.0.dist-info/METADATA")
    found.write_text(found.read_text().replace("1.0", "0.9"))
    assert environment.wrong() == ["acme-first==1.0"]
    assert not environment.ready


@pytest.mark.nightly  # half a dozen calls of pip
def test_goes_on_where_it_was_cut_off(index):
    (index / "acme_second-2.5-py3-none-any.whl").rename(index / "later")
    environment = acme("acme-second==2.5")
    with pytest.raises(ChildError) as caught:
        environments.ensure(environment, lambda share, text: None)
    assert caught.value.code == "no_index"
    assert "acme-second==2.5" in caught.value.message
    assert "PIP_INDEX_URL" in caught.value.hint
    assert not environment.ready
    (index / "later").rename(index / "acme_second-2.5-py3-none-any.whl")
    (index / "acme_first-1.0-py3-none-any.whl").unlink()  # fetched before the cut: not asked for again
    environments.ensure(environment, lambda share, text: None)
    assert environment.ready


@pytest.mark.nightly  # half a dozen calls of pip
def test_what_can_not_be_imported_is_no_environment(index):
    environment = acme(imports=("acme_third",))
    with pytest.raises(ChildError) as caught:
        environments.ensure(environment, lambda share, text: None)
    assert caught.value.code == "environment_failed"
    assert "acme_third" in caught.value.message
    assert not environment.ready


def test_a_disk_that_is_too_small_is_told_before_anything_is_fetched(index):
    environment = Environment("acme", ("acme-first==1.0",), ("acme_first",), 10**18)
    with pytest.raises(ChildError) as caught:
        environments.ensure(environment, lambda share, text: None)
    assert caught.value.code == "disk_full"
    assert not environment.python.exists()


def test_other_pins_are_another_folder():
    assert acme().folder != acme("acme-second==2.5").folder
