"""Runs in qat's own environment, as a script: trains a rounded model to answer as the model itself does.

On stdin one JSON object, as `qat._spec` makes it: the model as transformers reads it, codes and scales to begin with,
rows (.npy of int32 [rows, tokens]), what is trained and how. On stdout lines of JSON: {"loading"}, {"resumed": step},
{"step", "steps", "loss"} after each, {"log": text}, {"error": code, "message", "hint"}; at last {"done": true,
"about"}, when codes, scales and norms lie in `output`. A training that was killed goes on at its last whole checkpoint.
Imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

EDGE = 0.499
"""Of a step: how far from its point a weight begins at most, so that it is rounded to the code that it had."""
CHECKPOINTS, STATE, WEIGHTS = 10, "trainer_state.json", "trained.safetensors"
"""Of a training; the file that transformers writes last; what is trained."""
_CHECKPOINT = 12
"""Bytes for each number that is trained: itself and AdamW's two means."""
_FULL = 16 * 2**20
"""Bytes: a disk with less is full."""


class Failed(Exception):
    """code, message and hint, for the job."""


@contextmanager
def writing(path: Path, needed: int) -> Iterator[None]:
    """Around what writes `needed` bytes at `path`. Raises Failed for a disk that is full: torch's writer does not say
    what was wrong, so what is free tells."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:
        there = next(each for each in (path, *path.parents) if each.exists())
        free = shutil.disk_usage(there).free
        if free > _FULL and "No space left" not in str(error):
            raise
        raise Failed(
            "disk_full",
            f"the disk is full: {path} could not be written; {needed / 2**20:,.0f} MiB are needed, "
            f"{free / 2**20:,.0f} MiB are free",
            "Free some space and start the job again: it goes on at the last checkpoint.",
        ) from error


def say(**fields: Any) -> None:
    sys.__stdout__.write(json.dumps(fields) + "\n")  # type: ignore[union-attr] # always there in a child
    sys.__stdout__.flush()  # type: ignore[union-attr] # as above


# -- the loss -------------------------------------------------------------------------------------------------------


def divergence(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """KL(teacher ‖ student) in nats per token, times T² (Hinton et al., arXiv 1503.02531, §2). Both: [..., vocab]."""
    vocab = student.shape[-1]
    got = functional.log_softmax(student.float().reshape(-1, vocab) / temperature, -1)
    wanted = functional.log_softmax(teacher.float().reshape(-1, vocab) / temperature, -1)
    return temperature**2 * functional.kl_div(got, wanted, reduction="batchmean", log_target=True)


def hidden_error(student: tuple[torch.Tensor, ...], teacher: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Squared error of each layer's outputs as a share of their squares, mean over the layers. [rows, tokens, hidden]
    each; the first, the embedding's, is no layer's."""
    shares = [
        (ours.float() - theirs.float()).square().sum() / theirs.float().square().sum()
        for ours, theirs in zip(student[1:], teacher[1:], strict=True)
    ]
    return torch.stack(shares).mean()


# -- weights --------------------------------------------------------------------------------------------------------


def latent(
    weight: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, centred: bool
) -> torch.Tensor:
    """What is trained in place of `weight` [out, in]: what of the same codes lies nearest to it; centred: the points
    themselves, where `weight` is no measure (its channels were widened). scale, zero: [out, groups]."""
    groups = scale.shape[1]
    points = codes.float().view(len(codes), groups, -1) - zero.float()[..., None]
    step = scale[..., None]
    if centred:
        return (points * step).view_as(weight)
    near = weight.view_as(points)
    return near.clamp((points - EDGE) * step, (points + EDGE) * step).view_as(weight)


def codes_of(rounded: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """int8 [out, in], of what a fake quantizer gave: its points are whole steps of the scale."""
    steps = rounded.view(len(rounded), scale.shape[1], -1) / scale[..., None]
    return (steps.round() + zero.float()[..., None]).to(torch.int8).view_as(rounded)


class Student:
    """The model with fake quantizers where it was rounded. matrices: module's name → FakeQuantizedLinear."""

    def __init__(self, model: Any, spec: dict[str, Any]) -> None:
        from torchao.quantization.qat import FakeQuantizedLinear, IntxFakeQuantizeConfig

        self._spec, self._start = spec, load_file(spec["start"])
        self.matrices: dict[str, Any] = {}
        self.norms: dict[str, nn.Parameter] = {}
        self.floors: dict[str, torch.Tensor] = {}
        config = IntxFakeQuantizeConfig(
            getattr(torch, "int4" if spec["symmetric"] else "uint4"),
            group_size=spec["group"],
            is_symmetric=spec["symmetric"],
            is_dynamic=False,
        )
        parameters = dict(model.named_parameters())
        for name, tensor in self._start.items():
            if name in parameters:  # what smoothing changed and stays in floating point
                parameters[name].data.copy_(tensor)
        self.norms = {name: parameters[name] for name in spec["norms"] if name in parameters}
        for module in [name.removesuffix(".codes") for name in self._start if name.endswith(".codes")]:
            try:
                linear = model.get_submodule(module)
            except AttributeError:
                hint = "Choose the back end native."
                raise Failed("not_trainable", f"model: transformers has no module {module}", hint) from None
            made = FakeQuantizedLinear.from_linear(linear, weight_config=config)
            codes, scale, zero = (self._start[f"{module}.{kind}"] for kind in ("codes", "scale", "zero"))
            made.weight = nn.Parameter(latent(linear.weight.data, codes, scale, zero, spec["centred"]))
            rounder = made.weight_fake_quantizer
            rounder.scale = nn.Parameter(scale.clone())
            del rounder.zero_point  # a plain None, in whose place a buffer moves with the model
            rounder.register_buffer("zero_point", zero.to(torch.int32), persistent=False)
            model.set_submodule(module, made)
            self.matrices[module] = made
            self.floors[module] = scale * 0.1
        self.model = self._adapted(model) if spec["train"] == "lora" else model
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for parameter in self.trained().values():
            parameter.requires_grad_(True)

    def _adapted(self, model: Any) -> Any:
        """With matrices of low rank that are added to the weights before these are rounded: what is served then has no
        part that is not."""
        from peft import LoraConfig, get_peft_model
        from peft.tuners.lora import Linear as LoraLinear
        from torchao.quantization.qat import FakeQuantizedLinear

        class Adapted(LoraLinear):  # type: ignore[misc] # peft has no types here
            def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
                base = self.get_base_layer()
                return functional.linear(x, base.weight_fake_quantizer(self.whole()), base.bias)

            def whole(self) -> torch.Tensor:
                (name,) = self.active_adapters
                weight: torch.Tensor = self.get_base_layer().weight + self.get_delta_weight(name)
                return weight

        rank = self._spec["rank"]
        config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=list(self.matrices))
        config._register_custom_module(
            {FakeQuantizedLinear: Adapted}
        )  # peft's documented way to give a layer of one's own
        return get_peft_model(model, config)

    def trained(self) -> dict[str, nn.Parameter]:
        """What the optimizer changes, by name."""
        found = dict(self.norms)
        for module, matrix in self.matrices.items():
            found[f"{module}.scale"] = matrix.weight_fake_quantizer.scale
            if self._spec["train"] == "full":
                found[f"{module}.weight"] = matrix.weight
        if self._spec["train"] == "lora":
            found |= {name: parameter for name, parameter in self.model.named_parameters() if "lora_" in name}
        return found

    def hold_scales(self) -> None:
        """A scale that a step took near 0, or past it, would lose its group."""
        with torch.no_grad():
            for module, matrix in self.matrices.items():
                scale = matrix.weight_fake_quantizer.scale
                torch.maximum(scale, self.floors[module].to(scale.device), out=scale.data)

    @torch.no_grad()
    def finished(self) -> tuple[dict[str, torch.Tensor], float]:
        """Codes, scales and norms as the version has them, and the share of the codes that are others than before."""
        made: dict[str, torch.Tensor] = {name: norm.detach().cpu() for name, norm in self.norms.items()}
        changed = total = 0
        kept = getattr(torch, self._spec["scale_dtype"])
        for module, matrix in self.matrices.items():
            rounder = matrix.weight_fake_quantizer
            rounder.scale.data = rounder.scale.data.to(kept).float()  # as the file will hold it
            weight = self.model.get_submodule(f"base_model.model.{module}").whole() if self._adapts else matrix.weight
            codes = codes_of(rounder(weight), rounder.scale, rounder.zero_point).cpu()
            made[f"{module}.codes"], made[f"{module}.scale"] = codes, rounder.scale.detach().cpu()
            changed += int((codes != self._start[f"{module}.codes"]).sum())
            total += codes.numel()
        return {name: tensor.contiguous() for name, tensor in made.items()}, changed / max(1, total)

    @property
    def _adapts(self) -> bool:
        return bool(self._spec["train"] == "lora")


# -- training -------------------------------------------------------------------------------------------------------


def device_of(spec: dict[str, Any]) -> tuple[str, torch.dtype]:
    """Where it is computed, and in what. Raises Failed where bfloat16 is asked for and not there."""
    gpu = torch.cuda.is_available()
    has = (
        torch.cuda.is_bf16_supported(including_emulation=False) if gpu else torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    wanted = spec["precision"]
    if wanted == "bfloat16" and not has:
        raise Failed(
            "no_bfloat16",
            f"qat_precision: this machine's {'GPU' if gpu else 'processor'} has no bfloat16 arithmetic",
            "Choose auto or float32.",
        )
    half = wanted == "bfloat16" or (wanted == "auto" and gpu and has)
    return ("cuda" if gpu else "cpu"), (torch.bfloat16 if half else torch.float32)


def last_checkpoint(work: Path) -> Path | None:
    """The newest one that is whole: its state is written last."""
    for folder in sorted(work.glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            json.loads((folder / STATE).read_text())
        except (OSError, ValueError):
            shutil.rmtree(folder, ignore_errors=True)
            continue
        return folder
    return None


def train(spec: dict[str, Any]) -> dict[str, Any]:
    import numpy
    from transformers import AutoModelForCausalLM, TrainingArguments

    device, dtype = device_of(spec)
    say(loading=True)
    if spec["precision"] == "auto" and device == "cuda" and dtype is torch.float32:
        say(log="this GPU has no bfloat16 arithmetic: trained in float32, which is slower")
    torch.manual_seed(spec["seed"])
    teacher: Any = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=dtype)
    teacher.to(device).eval().requires_grad_(False)
    student = Student(AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32), spec)
    rows = torch.from_numpy(numpy.load(spec["data"])).long()
    work, steps = Path(spec["work"]), spec["steps"]
    found = last_checkpoint(work)
    if found is not None:
        say(resumed=int(found.name.rpartition("-")[2]))
    arguments = TrainingArguments(
        output_dir=str(work),
        max_steps=steps,
        per_device_train_batch_size=spec["rows"],
        learning_rate=spec["learning_rate"],
        lr_scheduler_type="cosine",
        warmup_steps=min(steps // 10, 100),
        weight_decay=0.0,
        optim="adamw_torch",
        bf16=dtype is torch.bfloat16,
        use_cpu=device == "cpu",
        gradient_checkpointing=spec["recompute"],
        save_strategy="steps",
        save_steps=max(1, steps // CHECKPOINTS),
        save_total_limit=2,
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        dataloader_drop_last=True,
        seed=spec["seed"],
    )
    trained = sum(parameter.numel() for parameter in student.trained().values())
    with writing(work, _CHECKPOINT * trained):
        trainer(student, teacher, arguments, [{"input_ids": row} for row in rows], spec).train(
            resume_from_checkpoint=None if found is None else str(found)
        )
    made, changed = student.finished()
    output = Path(spec["output"])
    part = output.with_suffix(".part")
    with writing(output, sum(tensor.nbytes for tensor in made.values())):
        save_file(made, part)
    part.replace(output)
    return {
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "changed_codes": changed,
        "trained_parameters": trained,
        "training_rows": len(rows),
    }


def trainer(student: Student, teacher: Any, arguments: Any, rows: list[dict[str, torch.Tensor]], spec: Any) -> Any:
    """transformers' own, with the loss of a distillation; its checkpoints hold what is trained and nothing else."""
    from transformers import Trainer, TrainerCallback

    class Distillation(Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            told = {"use_cache": False, "output_hidden_states": bool(spec["hidden"])}
            with torch.no_grad():
                wanted = teacher(input_ids=inputs["input_ids"], **told)
            got = model(input_ids=inputs["input_ids"], **told)
            loss = divergence(got.logits, wanted.logits, spec["temperature"])
            if spec["hidden"]:
                loss = loss + spec["hidden"] * hidden_error(got.hidden_states, wanted.hidden_states)
            value, step = float(loss.detach()), self.state.global_step + 1
            if not torch.isfinite(loss):
                raise Failed(
                    "diverged",
                    f"training: the loss is {value} in step {step}",
                    f"Lower qat_learning_rate (it is {spec['learning_rate']:g}), or choose float32.",
                )
            self.told = step, value
            return (loss, got) if return_outputs else loss

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or arguments.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            made = {name: tensor.detach().cpu().contiguous() for name, tensor in student.trained().items()}
            save_file(made, folder / WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            stored = load_file(Path(resume_from_checkpoint) / WEIGHTS)
            with torch.no_grad():
                for name, parameter in student.trained().items():
                    parameter.copy_(stored[name])

    class Teller(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            student.hold_scales()
            step, loss = distillation.told
            say(step=step, steps=args.max_steps, loss=loss)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # Older checkpoints go, these stay: by them a job sees that another attempt would come further.
            (Path(args.output_dir) / f"reached-{state.global_step}").touch()

    distillation = Distillation(model=student.model, args=arguments, train_dataset=rows, callbacks=[Teller()])
    return distillation


def main() -> int:
    spec = json.load(sys.stdin)
    sys.stdout = sys.stderr  # prints of libraries are no lines of the protocol
    try:
        about = train(spec)
    except Failed as error:
        code, message, hint = error.args
        say(error=code, message=message, hint=hint)
        return 1
    except torch.OutOfMemoryError:
        hint = "Take fewer qat_rows or shorter ones, set qat_recompute, or train lora."
        say(error="out_of_memory", message="training: the GPU's memory is too small", hint=hint)
        return 1
    say(done=True, about=about)
    return 0


if __name__ == "__main__":
    # One GPU: transformers would copy the model to all of them.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    sys.exit(main())
