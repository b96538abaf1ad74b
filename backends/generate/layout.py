"""What lies in a language model's folder: the decoder's shape, its tokenizer and its chat template.

Source: ONNX Runtime GenAI's genai_config.json, and the files of the Hugging Face hub.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from backends import _confine, _foldertexts
from gateway.errors import LoadFailed

GENAI_CONFIG = "genai_config.json"
HUB_CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
HUB_FILES = ("model.onnx", "decoder_model_merged.onnx", "onnx/model.onnx", "onnx/decoder_model_merged.onnx")
"""Where Optimum and the hub have a decoder, the likeliest first."""
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"

MAX_TEXT_BYTES = 256 << 20


class Layout(Struct, frozen=True):
    """A decoder as its builder left it."""

    file: Path
    context_length: int
    bos: int | None
    eos: frozenset[int]
    layers: int
    kv_heads: int
    head_size: int
    vocabulary_size: int
    names: Mapping[str, str]
    """Of the inputs and outputs, as genai_config.json has them."""
    shared_buffer: bool
    """Past and present keys and values may be one buffer."""
    windowed: bool = False
    """A token sees only some of those before it."""


_NAMES = {
    "logits": "logits",
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
}


def read_layout(directory: Path, root: Path) -> Layout:
    """The layout that the folder's configuration tells: GenAI's, or else the hub's. Raises LoadFailed."""
    hub = not (directory / GENAI_CONFIG).exists() and (directory / HUB_CONFIG).exists()
    return _hub_layout(directory, root) if hub else _genai_layout(directory, root)


def _genai_layout(directory: Path, root: Path) -> Layout:
    config = _object(directory, root, GENAI_CONFIG)
    search = config.get("search") or {}
    model = config.get("model")
    decoder = model.get("decoder") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(decoder, dict):
        raise LoadFailed(f"{GENAI_CONFIG}: it describes no model.decoder")
    if unfit := sorted(model.keys() & {"vision", "speech", "embedding", "encoder"} | decoder.keys() & {"pipeline"}):
        raise LoadFailed(f"{GENAI_CONFIG}: {unfit[0]}: only plain text decoders are served")
    return Layout(
        file=_confine.model_file(directory, root, _text(decoder, "filename", "model.onnx")),
        context_length=_count(model, "context_length"),
        bos=model["bos_token_id"] if isinstance(model.get("bos_token_id"), int) else None,
        eos=_tokens(model.get("eos_token_id"), GENAI_CONFIG),
        layers=_count(decoder, "num_hidden_layers"),
        kv_heads=_count(decoder, "num_key_value_heads"),
        head_size=_count(decoder, "head_size"),
        vocabulary_size=_count(model, "vocab_size"),
        names=_NAMES | (decoder.get("inputs") or {}) | (decoder.get("outputs") or {}),
        shared_buffer=bool(search.get("past_present_share_buffer", True)),
    )


def _hub_layout(directory: Path, root: Path) -> Layout:
    """SPEC: transformers names the same number differently from one family of models to the next."""
    config = _object(directory, root, HUB_CONFIG)
    config |= config["text_config"] if isinstance(config.get("text_config"), dict) else {}
    generation = _object(directory, root, GENERATION_CONFIG) if (directory / GENERATION_CONFIG).exists() else {}

    def count(*keys: str) -> int:
        return _count(config, next((key for key in keys if config.get(key) is not None), keys[0]), HUB_CONFIG)

    heads = count("num_attention_heads", "n_head", "num_heads")
    context = count("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
    size = (
        count("head_dim") if config.get("head_dim") is not None else count("hidden_size", "n_embd", "d_model") // heads
    )
    ends = (table["eos_token_id"] for table in (generation, config) if table.get("eos_token_id") is not None)
    window = config.get("sliding_window") if config.get("use_sliding_window") is not False else None
    name = next((name for name in HUB_FILES if (directory / name).exists()), HUB_FILES[0])
    return Layout(
        file=_confine.model_file(directory, root, name),
        context_length=context,
        bos=config["bos_token_id"] if isinstance(config.get("bos_token_id"), int) else None,
        eos=_tokens(next(ends, None), HUB_CONFIG),
        layers=count("num_hidden_layers", "n_layer", "num_layers"),
        kv_heads=count("num_key_value_heads", "num_attention_heads", "n_head", "num_heads"),
        head_size=size,
        vocabulary_size=count("vocab_size"),
        names=_NAMES,
        shared_buffer=False,
        windowed=isinstance(window, int) and window < context,
    )


def read_text(directory: Path, root: Path, name: str) -> str:
    """A text file of the folder. Raises LoadFailed."""
    return _foldertexts.read_text(directory, root, name, MAX_TEXT_BYTES)


def read_tokenizer_config(directory: Path, root: Path) -> dict[str, Any]:
    """The tokenizer's settings; empty where the folder has none."""
    return _object(directory, root, TOKENIZER_CONFIG) if (directory / TOKENIZER_CONFIG).exists() else {}


def read_template(directory: Path, root: Path, tokenizer_config: Mapping[str, Any]) -> str:
    """The chat template; empty where there is none."""
    if (directory / TEMPLATE).exists():
        return read_text(directory, root, TEMPLATE)
    template = tokenizer_config.get("chat_template") or ""
    if isinstance(template, list):
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("tool_use") or named.get("default") or ""
    return template if isinstance(template, str) else ""


def _object(directory: Path, root: Path, name: str) -> dict[str, Any]:
    return _foldertexts.read_object(directory, root, name, MAX_TEXT_BYTES)


def _count(table: dict[str, Any], key: str, file: str = GENAI_CONFIG) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LoadFailed(f"{file}: {key} must be a whole number of at least 1")
    return value


def _text(table: dict[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise LoadFailed(f"{GENAI_CONFIG}: {key} must be a file's name")
    return value


def _tokens(value: Any, file: str) -> frozenset[int]:
    tokens = value if isinstance(value, list) else [value]
    if not tokens or not all(isinstance(token, int) for token in tokens):
        raise LoadFailed(f"{file}: eos_token_id must be a token or a list of tokens")
    return frozenset(tokens)
