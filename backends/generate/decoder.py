"""The model's session: a row of keys and values for each slot; here, past and present in one buffer.

A prompt is read by its own slot alone, in chunks; a decoding step takes the first slots together, each as long as it
is: the mask says where each ends. Rows that idle between them are computed too, and what they write is overwritten.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray

from backends import _confine, _guards
from backends._failures import out_of_memory, shown
from backends._session import Config as SessionConfig
from backends._session import Model, OnnxRuntime
from backends.generate.bindings import DEVICE, LOGITS_BYTES, POSITIONS, bind, dtype_of, vocabulary_size
from backends.generate.growing import GrowingDecoder
from backends.generate.layout import Layout
from gateway.errors import LoadFailed, OutOfMemory


class Decoder(Protocol):
    """What the scheduler needs of a model."""

    slots: int
    vocabulary: int
    length: int
    """Tokens that a slot holds."""
    chunk: int
    """Tokens of a prompt that one run may read."""

    def prefill(self, slot: int, past: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Read more of a slot's prompt. Shapes: [tokens] -> [tokens, vocabulary], valid until the next run."""

    def decode(self, lengths: Sequence[int], tokens: Sequence[int], drawing: Sequence[int]) -> NDArray[np.float32]:
        """One more token for each of the slots that draw, which are among the first.

        Shapes: [rows] -> [at least rows, vocabulary], valid until the next run, in the rows of those that draw.
        """

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the target's first `length` tokens those of the source."""


class SlotDecoder:
    """A decoder whose past and present share a buffer, on the CPU."""

    def __init__(self, session: Any, layout: Layout, slots: int, length: int, chunk: int) -> None:
        self._session, self._names = session, layout.names
        self.slots, self.length = slots, length
        self.vocabulary = vocabulary_size(session, layout)
        self.chunk = max(1, min(chunk, LOGITS_BYTES // (4 * self.vocabulary)))
        kinds = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
        self._caches: list[tuple[str, str, NDArray[Any]]] = []
        for layer in range(layout.layers):
            for part in ("key", "value"):
                past = layout.names[f"past_{part}_names"] % layer
                dtype = dtype_of(kinds, past)
                # NOTE: zeros of this size are pages that cost nothing before they are written.
                cache = np.zeros((slots, layout.kv_heads, length, layout.head_size), dtype)
                self._caches.append((past, layout.names[f"present_{part}_names"] % layer, cache))
        self._positions = POSITIONS in kinds
        self._logits_dtype = dtype_of(kinds, layout.names["logits"])
        rows = max(slots, self.chunk)
        self._logits = np.empty((rows, self.vocabulary), self._logits_dtype)
        self._tokens = np.zeros((slots, 1), np.int64)
        self._lengths = np.zeros((slots, 1), np.int64)
        self._places, self._ones = np.arange(length + 1), np.ones((1, length + 1), np.int64)
        self._steps = [self._step(rows) for rows in range(1, slots + 1)]
        self._prompts = [self._binding(slice(slot, slot + 1)) for slot in range(slots)]

    def prefill(self, slot: int, past: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Read more of a slot's prompt."""
        ids = np.array([tokens], np.int64)
        mask = np.ones((1, past + len(tokens)), np.int64)
        positions = np.arange(past, past + len(tokens), dtype=np.int64)[None]
        binding = self._prompts[slot]
        bind(binding, self._names["input_ids"], ids)
        if self._positions:
            bind(binding, POSITIONS, positions)
        self._bind_logits(binding, ids.shape)
        return self._run(binding, mask, len(tokens))

    def decode(self, lengths: Sequence[int], tokens: Sequence[int], drawing: Sequence[int]) -> NDArray[np.float32]:
        """One more token for each of the first slots, whether it draws or not."""
        rows = len(tokens)
        self._tokens[:rows, 0] = tokens
        held = self._lengths[:rows]
        held[:, 0] = lengths
        most = max(lengths) + 1
        mask = self._ones[:, :most] if rows == 1 else (self._places[:most] <= held).astype(np.int64)
        return self._run(self._steps[rows - 1], mask, rows)

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the target's first `length` tokens those of the source."""
        for _, _, cache in self._caches:
            cache[target, :, :length] = cache[source, :, :length]

    def _step(self, rows: int) -> Any:
        """PERF: all but the mask is bound once for all; each would cost 5 us a step."""
        binding = self._binding(slice(0, rows))
        bind(binding, self._names["input_ids"], self._tokens[:rows])
        if self._positions:
            bind(binding, POSITIONS, self._lengths[:rows])
        self._bind_logits(binding, (rows, 1))
        return binding

    def _binding(self, rows: slice) -> Any:
        binding = self._session.io_binding()
        for past, present, cache in self._caches:
            part = cache[rows]
            binding.bind_input(past, DEVICE, 0, part.dtype.type, part.shape, part.ctypes.data)
            binding.bind_output(present, DEVICE, 0, part.dtype.type, part.shape, part.ctypes.data)
        return binding

    def _bind_logits(self, binding: Any, shape: tuple[int, ...]) -> None:
        name, pointer = self._names["logits"], self._logits.ctypes.data
        binding.bind_output(name, DEVICE, 0, self._logits_dtype, (*shape, self.vocabulary), pointer)

    def _run(self, binding: Any, mask: NDArray[np.int64], tokens: int) -> NDArray[np.float32]:
        """Shapes: mask [rows, held] -> [tokens, vocabulary]."""
        bind(binding, self._names["attention_mask"], mask)
        self._session.run_with_iobinding(binding)
        logits = self._logits[:tokens]
        return logits if logits.dtype == np.float32 else logits.astype(np.float32)


def slot_bytes(layout: Layout, length: int) -> int:
    """What one slot's keys and values take, as float32; a step has two copies of those that grow."""
    copies = 1 if layout.shared_buffer else 3
    return 2 * layout.layers * layout.kv_heads * layout.head_size * length * 4 * copies


def open_decoder(
    layout: Layout, directory: Path, root: Path, slots: int, length: int, chunk: int, threads: int
) -> Decoder:
    """The decoder, its session opened. Raises LoadFailed or OutOfMemory, whose text shows no path."""
    try:
        model = onnx.load_model(layout.file, format="protobuf", load_external_data=False)
    except Exception:
        raise LoadFailed(f"{layout.file.name} is not an ONNX model, or is damaged or cut short") from None
    _confine.check_external_data(model, layout.file.parent, root)
    shared = layout.shared_buffer and any(node.op_type == "GroupQueryAttention" for node in model.graph.node)
    source = Model(layout.file, model.SerializeToString() if _guards.guard(model) else None)
    del model
    try:
        session = OnnxRuntime().open(source, SessionConfig(threads=threads), "CPU")
        return (SlotDecoder if shared else GrowingDecoder)(session, layout, slots, length, chunk)
    except LoadFailed:
        raise
    except Exception as error:
        text = f"{layout.file.name}: {shown(error, (directory, root))}"
        raise (OutOfMemory(text) if out_of_memory(error) else LoadFailed(text)) from error
