"""Compares the gateway's language models with llama-cpp-python's server and ONNX Runtime GenAI's own loop.

    python tests/bench/language_peers.py [--write]                  some minutes, on the demo's language model
    python tests/bench/language_peers.py --size smollm [--write]    some more, on random weights of SmolLM2-135M's shape

Run it in the environment of scripts/setup. All have the same weights in float32 and one thread, and answer the same
prompts with as many tokens, the likeliest each. The gateway and llama-cpp-python's server stream over HTTP to the same
client; GenAI's loop runs in its own process with no server around it. Environments are made in .venv-peers on first
use; llama-cpp-python is compiled there (some minutes; needs a C++ compiler). What each says is shown. Rounds take
turns; medians are shown. `--write` puts the table into docs/performance.md. Only ratios mean anything elsewhere.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import decoder_model
import numpy as np
import onnx
import orjson
from contenders import HERE, ROOT, start
from msgspec import Struct
from onnx import numpy_helper
from peer_environments import environment
from rivals import end, free_ports
from tokenizers import Tokenizer

from backends.generate import layout

DEMO = ROOT / "configs" / "models" / "tinychat" / "1"
PAGE = ROOT / "docs" / "performance.md"
STREAMS = (1, 4, 8, 16)
SIZES = ("smollm", "tinychat")
THREADS = 1
"""NOTE: engines whose threads spin while they wait tell more of the machine's other work than of their own."""
PACKAGES = {
    "llama-cpp-python": ("llama-cpp-python[server]==0.3.36", "gguf==0.19.0"),
    "onnxruntime-genai": ("onnxruntime-genai==0.18.0",),
}
NAMES = (
    "Finn",
    "Gus",
    "Dan",
    "Eve",
    "Mia",
    "Leo",
    "Ada",
    "Bob",
    "Tom",
    "Ann",
    "Max",
    "Zoe",
    "Sam",
    "Kim",
    "Ben",
    "Amy",
)
PROMPT = "Once upon a time, {} found a black stone near the castle and wanted to show it to {}."
READY_SECONDS = 120.0


class Round(Struct):
    """One measurement."""

    tokens_per_s: float
    firsts: list[float]
    gaps: list[float]


class Server(Struct):
    """Where to stream from, and what else its requests need."""

    name: str
    address: str
    model: str
    more: dict[str, Any]


def main() -> None:
    """Measure, print, and write."""
    options = _options()
    folders = {name: environment(name, packages) for name, packages in PACKAGES.items()}
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = _model(scratch, options.size)
        servers = [_gateway(stack, scratch, folder, options.size)]
        if folders["llama-cpp-python"] is not None:
            servers.append(_llama(stack, scratch, folder, folders["llama-cpp-python"], options.size))
        rounds: dict[str, dict[int, list[Round]]] = {server.name: {} for server in servers}
        said = {server.name: asyncio.run(_text(server)) for server in servers}
        for count in STREAMS:
            for _ in range(options.rounds):
                for server in servers:
                    found = asyncio.run(_streams(server, count, options.tokens))
                    rounds[server.name].setdefault(count, []).append(found)
        if folders["onnxruntime-genai"] is not None:
            loop, answer = _genai(scratch, folder, folders["onnxruntime-genai"], options)
            rounds["GenAI's loop"], said["GenAI's loop"] = loop, answer
    for name, text in said.items():
        print(f"{name} says: {text!r}")
    table = _table(rounds, options)
    print(table)
    if options.write:
        _write(table, options.size)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="see the top of this file")
    parser.add_argument("--size", choices=SIZES, default="tinychat")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    return parser.parse_args()


# The same weights for all...


def _model(scratch: Path, size: str) -> Path:
    """A folder in GenAI's layout, complete enough for GenAI itself."""
    folder = scratch / "models" / size / "1"
    folder.mkdir(parents=True)
    if size == "smollm":
        decoder_model.write(folder, DEMO, decoder_model.SMOLLM)
        config = json.loads((folder / "genai_config.json").read_text())
        demos = json.loads((DEMO / "genai_config.json").read_text())
        for part in ("model", "search"):
            config[part] = demos[part] | config[part]
        config["model"]["decoder"] = demos["model"]["decoder"] | config["model"]["decoder"]
        config["model"]["decoder"] |= {"hidden_size": 576, "num_attention_heads": 9}
    else:
        for file in DEMO.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"] |= {"intra_op_num_threads": THREADS}
    (folder / "genai_config.json").write_text(json.dumps(config))
    settings = f'backend = "generate"\n[generate]\nslots = 16\ncontext_length = 512\nthreads = {THREADS}\n'
    (folder.parent / "model.toml").write_text(settings)
    return folder


def _weights(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The graph's weights under llama.cpp's names, and its shape."""
    described = layout.read_layout(folder, folder)
    graph = onnx.load_model(folder / "model.onnx").graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    attention = next(node for node in graph.node if node.op_type == "GroupQueryAttention")
    heads = next(one.i for one in attention.attribute if one.name == "num_heads")
    cosines = arrays.get("cos_cache", arrays.get("cosines"))
    assert cosines is not None
    base = float(np.arccos(cosines[1, 1])) ** -(described.head_size / 2)
    norm = next(node for node in graph.node if node.op_type == "SimplifiedLayerNormalization")
    epsilon = next(one.f for one in norm.attribute if one.name == "epsilon")
    found = _packed(arrays, described) if "cos_cache" in arrays else _apart(arrays, described)
    told = {
        "context": described.context_length,
        "hidden": heads * described.head_size,
        "inner": len(found["blk.0.ffn_gate.weight"]),
        "layers": described.layers,
        "heads": heads,
        "kv_heads": described.kv_heads,
        "vocabulary": described.vocabulary_size,
        "base": round(base),
        "epsilon": epsilon,
    }
    return found, told


def _packed(arrays: dict[str, np.ndarray], described: layout.Layout) -> dict[str, np.ndarray]:
    """As the model builder names them: query, key and value in one, the embedding that of the head."""
    head = arrays["lm_head.MatMul.weight"]
    found = {"token_embd.weight": np.ascontiguousarray(head.T), "output.weight": np.ascontiguousarray(head.T)}
    found["output_norm.weight"] = arrays[f"model.layers.{described.layers}.final_norm_layernorm.weight"]
    width = described.kv_heads * described.head_size
    for layer in range(described.layers):
        at = f"model.layers.{layer}"
        joined = arrays[f"{at}.attn.qkv_proj.MatMul.weight"]
        query, key, value = np.split(joined, [joined.shape[1] - 2 * width, joined.shape[1] - width], axis=1)
        parts = {
            "attn_q": query,
            "attn_k": key,
            "attn_v": value,
            "attn_output": arrays[f"{at}.attn.o_proj.MatMul.weight"],
        }
        parts |= {f"ffn_{part}": arrays[f"{at}.mlp.{part}_proj.MatMul.weight"] for part in ("gate", "up", "down")}
        found |= {f"blk.{layer}.{part}.weight": np.ascontiguousarray(array.T) for part, array in parts.items()}
        found[f"blk.{layer}.attn_norm.weight"] = arrays[f"{at}.input_layernorm.weight"]
        found[f"blk.{layer}.ffn_norm.weight"] = arrays[f"{at}.post_attention_layernorm.weight"]
    return found


def _apart(arrays: dict[str, np.ndarray], described: layout.Layout) -> dict[str, np.ndarray]:
    """As decoder_model.py names them."""
    found = {"token_embd.weight": arrays["embedding"], "output.weight": np.ascontiguousarray(arrays["head"].T)}
    found["output_norm.weight"] = arrays["scale.final"]
    names = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o"} | {
        f"ffn_{part}": part for part in ("gate", "up", "down")
    }
    for layer in range(described.layers):
        for part, name in names.items():
            found[f"blk.{layer}.{part}.weight"] = np.ascontiguousarray(arrays[f"{name}.{layer}"].T)
        found[f"blk.{layer}.attn_norm.weight"] = arrays[f"scale.attention.{layer}"]
        found[f"blk.{layer}.ffn_norm.weight"] = arrays[f"scale.inner.{layer}"]
    return found


# The contenders...


def _gateway(stack: contextlib.ExitStack, scratch: Path, folder: Path, size: str) -> Server:
    settings = scratch / "gateway.toml"
    settings.write_text('[gateway]\naccess_log = "off"\n')
    models = ["--models", str(folder.parent.parent), "--port", "0", "--device", "cpu"]
    address, _ = start(stack, [sys.executable, "-m", "gateway", "serve", str(settings), *models])
    return Server("gateway", address, size, {"ignore_eos": True})


def _llama(stack: contextlib.ExitStack, scratch: Path, folder: Path, environment: Path, size: str) -> Server:
    found, told = _weights(folder)
    np.savez(scratch / "weights.npz", **found)  # type: ignore[arg-type]
    (scratch / "shape.json").write_text(json.dumps(told))
    python, gguf = str(environment / "bin" / "python"), scratch / "model.gguf"
    files = [scratch / "weights.npz", scratch / "shape.json", folder / "tokenizer.json", gguf]
    subprocess.run([python, HERE / "peer_servers" / "gguf_writer.py", *files], check=True)
    (port,) = free_ports(1)
    # NOTE: it answers one request after the other; left alone, a new one would even end the one that runs.
    settings = ["--n_ctx", "512", "--n_threads", str(THREADS), "--n_threads_batch", str(THREADS)]
    command = [python, "-m", "llama_cpp.server", "--model", str(gguf), "--port", str(port), "--host", "127.0.0.1"]
    command += [*settings, "--interrupt_requests", "False", "--verbose", "False"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    stack.callback(end, process)
    server = Server("llama-cpp-python", f"http://127.0.0.1:{port}", size, {})
    asyncio.run(_ready(server))
    return server


def _genai(
    scratch: Path, folder: Path, environment: Path, options: argparse.Namespace
) -> tuple[dict[int, list[Round]], str]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    counts = [count for count in STREAMS for _ in range(options.rounds)]
    plan = [
        {"prompts": [tokenizer.encode(prompt).ids for prompt in _prompts(count)], "tokens": options.tokens}
        for count in counts
    ]
    (scratch / "plan.json").write_text(json.dumps(plan))
    command = [str(environment / "bin" / "python"), str(HERE / "peer_servers" / "genai_loop.py")]
    done = subprocess.run(
        [*command, str(folder), str(scratch / "plan.json")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"GenAI's loop failed: {done.stderr[-500:]}")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    rounds: dict[int, list[Round]] = {}
    for count, one in zip(counts, told, strict=True):
        rounds.setdefault(count, []).append(Round(one["tokens_per_s"], one["firsts"], one["gaps"]))
    return rounds, tokenizer.decode(told[0]["first_answer"][:16])


def _prompts(count: int) -> list[str]:
    return [PROMPT.format(NAMES[place], NAMES[(place + 5) % len(NAMES)]) for place in range(count)]


# Streams over HTTP, read with as little around them as possible...


async def _ready(server: Server) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            await _text(server)
            return
        await asyncio.sleep(0.2)
    sys.exit(f"{server.name} does not start")


async def _text(server: Server) -> str:
    text = ""
    async for _, data in _events(server, _prompts(1)[0], 16):
        text += "".join(choice["text"] for event in data for choice in orjson.loads(event)["choices"])
    return text


async def _streams(server: Server, count: int, tokens: int) -> Round:
    firsts: list[float] = []
    gaps: list[float] = []

    async def one(prompt: str) -> None:
        began = last = time.perf_counter()
        first = True
        reason = None
        async for now, data in _events(server, prompt, tokens):
            (firsts if first else gaps).append((now - (began if first else last)) * 1e3)
            first, last = False, now
            reason = orjson.loads(data[-1])["choices"][0]["finish_reason"] or reason
        assert reason == "length", f"{server.name}: {reason}"

    began = time.perf_counter()
    await asyncio.gather(*(one(prompt) for prompt in _prompts(count)))
    return Round(count * tokens / (time.perf_counter() - began), firsts, gaps)


async def _events(server: Server, prompt: str, tokens: int) -> Any:
    """When something came, and the events that did."""
    body = {"model": server.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    content = orjson.dumps(body | server.more)
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        )
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        rest = b""
        while piece := await reader.read(1 << 16):
            now = time.perf_counter()
            *lines, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
            data = [line[6:] for line in lines if line.startswith(b"data: {")]
            if data:
                yield now, data
    finally:
        writer.close()


# What is shown...


def _table(rounds: dict[str, dict[int, list[Round]]], options: argparse.Namespace) -> str:
    names = list(rounds)
    kinds = ("tokens/s", "first ms", "p99 gap ms")
    head = "| answers at a time | " + " | ".join(f"{name}: {kind}" for kind in kinds for name in names) + " |"
    lines = [head, "|" + "---|" * (1 + len(kinds) * len(names))]
    for count in STREAMS:
        found = [rounds[name][count] for name in names]
        rates = [f"{statistics.median(one.tokens_per_s for one in some):,.0f}" for some in found]
        firsts = [f"{statistics.median(_all(some, 'firsts')):,.0f}" for some in found]
        gaps = [f"{np.percentile(_all(some, 'gaps'), 99):,.1f}" for some in found]
        lines.append("| " + " | ".join([str(count), *rates, *firsts, *gaps]) + " |")
    versions = [f"{name} {version(name)}" for name in ("onnxruntime-gpu",)]
    versions += [packages[0].replace("==", " ").replace("[server]", "") for packages in PACKAGES.values()]
    about = (
        f"{options.size}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {', '.join(versions)}; {options.tokens} tokens an answer, "
        f"{options.rounds} rounds; load average {os.getloadavg()[0]:.1f}:"
    )
    return about + "\n\n" + "\n".join(lines)


def _all(rounds: Sequence[Round], kind: str) -> list[float]:
    return [value for one in rounds for value in getattr(one, kind)] or [0.0]


def _write(table: str, size: str) -> None:
    begin, ends = f"<!-- language peers, {size}: written by tests/bench/language_peers.py -->", "<!-- end -->"
    text = PAGE.read_text("utf-8")
    changed, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(ends)}", lambda _: f"{begin}\n{table}\n{ends}", text, count=1, flags=re.DOTALL
    )
    if not count:
        sys.exit(f"{PAGE.name} has no place for the table")
    PAGE.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
