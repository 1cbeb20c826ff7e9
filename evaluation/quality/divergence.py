"""Where two greedy answers to one prompt part, how far apart are the two tokens? A gap near 0 is a tie that rounding
decides, and says nothing about either engine; a wide one is a fault in one of them.

    python -m evaluation.quality.divergence FOLDER --work WORK --tasks gsm8k ifeval

after `evaluation.quality.lm_eval_runs` with the same FOLDER and WORK. The gap, in nats, is what our engine says of the
two tokens after the text that both wrote: log-likelihoods through /v1/completions, as lm-eval asks for them.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.quality.instance import Instance, end_on_signals
from evaluation.quality.lm_eval_compare import Sample, read_samples, text
from evaluation.quality.lm_eval_runs import KNOWN, LENGTH, ROOT

TIE = 1e-3
"""Nats: float32 sums in another order move a log-likelihood by some 1e-5 to 1e-4."""

Encode = Callable[[str], list[int]]
Score = Callable[[list[int]], float]
"""Ids of a text, log-likelihood in nats of the last of its tokens after the others."""


@dataclass(frozen=True, slots=True)
class Parting:
    """place: tokens that both wrote before. gap: log-likelihood of the peer's token less that of ours; above 0, ours is
    not what our own engine holds for likelier here, in one computation of the whole text."""

    row: int
    place: int
    ours: int
    peer: int
    gap: float

    @property
    def tie(self) -> bool:
        return abs(self.gap) <= TIE


def partings(ours: list[Sample], peer: list[Sample], end: int, encode: Encode, score: Score) -> list[Parting]:
    """One for each row whose answers differ. end: the token that ends an answer, where one begins the other."""
    found = []
    for left, right in zip(ours, peer, strict=True):
        if text(left) == text(right):
            continue
        prompt = encode(left["arguments"]["gen_args_0"]["arg_0"])
        first, second = ([*encode(text(each)), end] for each in (left, right))
        place = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
        if place is None:
            continue
        before = [*prompt, *first[:place]]
        gap = score([*before, second[place]]) - score([*before, first[place]])
        found.append(Parting(int(left["doc_id"]), place, first[place], second[place], gap))
    return found


class Asked:
    """An instance's tokenizer and scores."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def encode(self, content: str) -> list[int]:
        ids: list[int] = self._post("/tokenize", {"prompt": content, "add_special_tokens": False})["tokens"]
        return ids

    def score(self, ids: list[int]) -> float:
        body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0}
        return float(self._post("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][-1])

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self._instance.token}", "Content-Type": "application/json"}
        data = json.dumps({"model": self._instance.name, **body}).encode()
        request = urllib.request.Request(self._instance.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--name", required=True, help="of the report: docs/quality/divergence.<name>.json")
    parser.add_argument("--work", type=Path, required=True)
    generating = [name for name, task in KNOWN.items() if task.generates]
    parser.add_argument("--tasks", nargs="+", choices=generating, default=generating)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "quality")
    options = parser.parse_args()
    end_on_signals()
    end = json.loads((options.model / "config.json").read_text())["eos_token_id"]
    folder = "-".join(name for name in KNOWN if name in options.tasks)
    found = {}
    engine: dict[str, Any] = {"dtype": "float32", "device": "cpu", "options": {"threads": options.threads}}
    with Instance(options.model, options.name, max_model_len=2 * LENGTH, max_num_seqs=4, **engine) as instance:
        asked = Asked(instance)
        for name in options.tasks:
            ours, peer = (read_samples(options.work / side / folder, f"tursiops_{name}") for side in ("ours", "hf"))
            parted = partings(ours, peer, end, asked.encode, asked.score)
            found[name] = [asdict(each) | {"tie": each.tie} for each in parted]
            print(f"{name}: {len(parted)} of {len(ours)} answers part, {sum(each.tie for each in parted)} at a tie")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"divergence.{options.name}.json"
    path.write_text(json.dumps({"name": options.name, "tie_nats": TIE, "rows": found}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
