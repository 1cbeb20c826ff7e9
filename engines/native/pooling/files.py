"""A pooling model's files, opened and checked: what it computes, and where each of its tensors lies. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.api import ModelShape
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles, open_model, read_json
from engines.native.loader.safetensors import read_safetensors
from engines.native.loader.tensors import TensorInfo
from engines.native.models.config import DecoderConfig
from engines.native.pooling.config import ACTIVATIONS, ENCODERS, EncoderConfig, Head, Task
from engines.native.pooling.head_config import head_of
from engines.native.pooling.names import DERIVED, expected_shapes, file_names, is_unused, prefix_of
from engines.native.pooling.task import task_of


@dataclass(frozen=True, slots=True)
class PoolingFiles:
    """An encoder's tensors by our names, or a decoder as the generating engine opens it; one of the two."""

    paths: dict[str, Path]
    head: Head
    encoder: EncoderConfig | None
    tensors: dict[str, TensorInfo]
    decoder: ModelFiles | None

    @property
    def config(self) -> EncoderConfig | DecoderConfig:
        return self.encoder if self.encoder is not None else self._decoder.config

    @property
    def gguf(self) -> None:
        """Pooling models come as safetensors."""

    @property
    def max_tokens(self) -> int:
        """Of one text: what the model was trained for, and no more than its positions reach."""
        reach = self.config.context_length
        return min(self.head.max_tokens or reach, reach)

    @property
    def stored(self) -> dict[str, TensorInfo]:
        """The tensors that are read."""
        return self.tensors if self.encoder is not None else self._decoder.tensors

    def shape(self) -> ModelShape:
        """parameters: those that are used, without a head for another task."""
        if self.encoder is None:
            config = self._decoder.config
            return ModelShape(
                architecture=config.architecture,
                layers=config.layers,
                hidden=config.hidden,
                ffn=config.ffn,
                heads=config.heads,
                kv_heads=config.kv_heads,
                head_dim=config.head_dim,
                vocab=config.vocab,
                context_length=self.max_tokens,
                parameters=config.parameters(),
                tied_embeddings=config.tied,
                sliding_window=config.sliding_window,
                task=self.head.task,
            )
        encoder = self.encoder
        return ModelShape(
            architecture=encoder.architecture,
            layers=encoder.layers,
            hidden=encoder.hidden,
            ffn=encoder.ffn,
            heads=encoder.heads,
            kv_heads=encoder.heads,
            head_dim=encoder.head_dim,
            vocab=encoder.vocab,
            context_length=self.max_tokens,
            parameters=sum(info.elements for info in self.tensors.values()),
            tied_embeddings=True,
            task=self.head.task,
        )

    @property
    def _decoder(self) -> ModelFiles:
        assert self.decoder is not None
        return self.decoder


def open_any(format: str, paths: dict[str, str]) -> ModelFiles | PoolingFiles:
    """By the task that the files name. Raises BadModel, naming tensor, key or file."""
    return open_model(format, paths) if task_of(format, paths) is Task.GENERATE else open_pooling(format, paths)


def open_pooling(format: str, paths: dict[str, str]) -> PoolingFiles:
    """Read headers, not weights, of a model whose task is not generation. Raises BadModel, naming tensor, key or
    file."""
    located = {name: Path(path) for name, path in paths.items()}
    for name, path in located.items():
        if not path.is_file():
            raise BadModel("missing_file", f"the file {name} of the model is not there", "register the model again")
    config = read_json(located, "config.json")
    head = head_of(task_of(format, paths), config, located)
    if config.get("model_type") not in ENCODERS:
        if config.get("is_causal") is False or config.get("use_bidirectional_attention"):
            raise BadModel("unknown_architecture", "config.json: attention both ways in a decoder is not served")
        return PoolingFiles(located, head, None, {}, open_model(format, paths))
    encoder = encoder_config(config)
    shards = [path for name, path in sorted(located.items()) if name.endswith(".safetensors")]
    if not shards:
        raise BadModel("missing_file", "the model has no .safetensors file")
    found: dict[str, TensorInfo] = {}
    for shard in shards:
        found.update(read_safetensors(shard, unread=DERIVED))
    return PoolingFiles(located, head, encoder, _checked(encoder, head, found), None)


def encoder_config(config: dict[str, Any]) -> EncoderConfig:
    """Raises BadModel("unknown_architecture"), naming the key, for what the encoder would compute wrongly."""
    architecture = str(config["model_type"])
    if config.get("position_embedding_type", "absolute") != "absolute":
        kind = config["position_embedding_type"]
        raise BadModel("unknown_architecture", f"config.json: position_embedding_type is {kind!r}, not 'absolute'")
    if config.get("is_decoder") or "quantization_config" in config:
        raise BadModel("unknown_architecture", "config.json: is_decoder and quantization_config are not served here")
    activation = str(config.get("hidden_act", "gelu"))
    if activation not in ACTIVATIONS:
        raise BadModel("unknown_architecture", f"config.json: hidden_act is {activation!r}", ", ".join(ACTIVATIONS))
    padding = int(config.get("pad_token_id") or 0) if architecture == "bert" else int(config.get("pad_token_id", 1))
    made = EncoderConfig(
        architecture=architecture,
        layers=_number(config, "num_hidden_layers"),
        hidden=_number(config, "hidden_size"),
        ffn=_number(config, "intermediate_size"),
        heads=_number(config, "num_attention_heads"),
        vocab=_number(config, "vocab_size"),
        positions=_number(config, "max_position_embeddings"),
        first_position=0 if architecture == "bert" else padding + 1,
        token_types=_number(config, "type_vocab_size"),
        norm_eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=activation,
    )
    if made.hidden % made.heads:
        raise BadModel("wrong_shape", f"config.json: hidden_size {made.hidden} has no {made.heads} equal heads")
    return made


def _number(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value <= 0:
        raise BadModel("unknown_architecture", f"config.json: {key} is {value!r}, a positive whole number is needed")
    return value


def _checked(config: EncoderConfig, head: Head, found: dict[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Each tensor that the encoder needs, and none that it would leave out unknowingly."""
    prefix = prefix_of(list(found), config.architecture)
    tensors = {}
    for name, shape in expected_shapes(config, head).items():
        places = [place for plain in file_names(name, config) for place in (prefix + plain, plain)]
        info = next((found[place] for place in places if place in found), None)
        if info is None:
            raise BadModel("missing_tensor", f"the tensor {places[0]} is missing ({len(found)} others are there)")
        if info.shape != shape:
            raise BadModel(
                "wrong_shape",
                f"tensor {info.name} has shape {list(info.shape)}; the configuration makes it {list(shape)}",
            )
        tensors[name] = info
    used = {info.name for info in tensors.values()}
    for name in found:
        if name not in used and not is_unused(name.removeprefix(prefix), head):
            raise BadModel("unknown_architecture", f"tensor {name} has no place in a {config.architecture} encoder")
    return tensors
