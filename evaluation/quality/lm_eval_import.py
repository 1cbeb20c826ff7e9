"""What lm-eval wrote, as figures with intervals and samples that the console can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluation.quality.figures import exponential, mean, ratio_of_sums, share
from evaluation.quality.lm_eval_compare import read_samples
from evaluation.quality.measure import Measured
from evaluation.quality.results import Figure, Sample


def read_results(folder: Path) -> dict[str, Any]:
    """lm-eval's own summary of one run. Raises FileNotFoundError."""
    found = sorted(folder.rglob("results_*.json"))
    if not found:
        raise FileNotFoundError(f"lm-eval left no results under {folder}")
    results: dict[str, Any] = json.loads(found[-1].read_text(encoding="utf-8"))
    return results


def imported(folder: Path, task: str, results: dict[str, Any]) -> tuple[str, Measured, list[Sample]]:
    """(primary figure, figures, samples) of one task. An item's score is the primary metric's."""
    lines = read_samples(folder, task)
    config = results["configs"][task]
    filters = list(dict.fromkeys(str(line["filter"]) for line in lines))
    named = [str(each["metric"]) for each in config["metric_list"]]
    figures: dict[str, Figure] = {}
    for of_filter in filters:
        of = [line for line in lines if line["filter"] == of_filter]
        for metric in (name for name in named if all(name in line for line in of)):
            name = metric if len(filters) == 1 else f"{metric}_{of_filter}"
            figures[name] = figure(metric, [each[metric] for each in of])
    primary = next(iter(figures), "")
    first = [line for line in lines if line["filter"] == filters[0]]
    choices = [len(line["arguments"]) for line in first] if config["output_type"] == "multiple_choice" else []
    chance = sum(1 / count for count in choices) / len(choices) if choices else None
    return primary, Measured(figures, chance=chance), [sample(line, named[0], config) for line in first]


def figure(metric: str, values: list[Any]) -> Figure:
    """Of one metric's values per item: right or wrong, numbers, or (log-likelihood, weight) pairs of a perplexity."""
    if values and isinstance(values[0], list | tuple):
        sums, weights = [-float(one) for one, _ in values], [float(weight) for _, weight in values]
        found = ratio_of_sums(sums, weights, range(len(values)), "nats")
        return exponential(found, "perplexity") if "perplexity" in metric else found
    numbers = [float(value) for value in values]
    if set(numbers) <= {0.0, 1.0}:
        return share(int(sum(numbers)), len(numbers))
    return mean(numbers, "share" if all(0 <= number <= 1 for number in numbers) else "")


def sample(line: dict[str, Any], metric: str, config: dict[str, Any]) -> Sample:
    """One line of lm-eval's --log_samples."""
    value: Any = line.get(metric)
    pair = isinstance(value, list | tuple)
    score = None if value is None else -float(value[0]) / float(value[1]) if pair else float(value)
    arguments = list(line["arguments"].values())
    answer, expected = line["filtered_resps"], str(line["target"])
    data: dict[str, Any] = {"filter": line["filter"], "prompt_sha256": line.get("prompt_hash", "")}
    if config["output_type"] == "multiple_choice":
        sums = [float(each[0]) for each in answer]
        choices = [str(each["arg_1"]).strip() for each in arguments]
        data |= {"loglikelihoods": sums, "choices": choices}
        answer = [choices[max(range(len(sums)), key=sums.__getitem__)]]
        expected = choices[int(line["target"])] if str(line["target"]).isdigit() else expected
    elif config["output_type"] == "generate_until":
        data["read_as"] = str(answer[0])
        answer = [line["resps"][0][0]]
    return Sample(
        id=str(line["doc_id"]),
        prompt=_text(arguments[0].get("arg_0", "")) if arguments else "",
        expected=expected,
        answer=str(answer[0]) if isinstance(answer, list) and answer else "",
        score=score,
        reason="" if score is None or pair or score > 0 else "lm-eval's rule does not hold",
        data=data,
    )


def _text(prompt: Any) -> str:
    """A prompt, or the messages of a chat, which lm-eval hands on as JSON in a list."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        try:
            prompt = json.loads(prompt[0])
        except ValueError:
            return str(prompt[0])
    if isinstance(prompt, list):
        return "\n\n".join(f"[{each['role']}] {each['content']}" for each in prompt)
    return str(prompt)
