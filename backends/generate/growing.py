"""A decoder whose keys and values grow by a concatenation in the graph, as Optimum exports it.

Each slot's keys and values lie in a buffer of their own. A decoding step takes slots together: their pasts are put side
by side, and as long as the same slots go on, what one step gives is what the next one takes. Shorter pasts are filled
up on the left, out of the mask's sight, where the model is found to see past that; else only equal lengths go together.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from backends.generate.bindings import DEVICE, LOGITS_BYTES, POSITIONS, bind, dtype_of, vocabulary_size
from backends.generate.layout import Layout
from gateway.errors import LoadFailed

BRANCH = "use_cache_branch"
"""What a merged graph asks: whether there is a past."""

_TRIED = (11, 4)
"""Lengths of the prompts that a model is tried with, before it is decided how it is run."""
_LIKE = 0.05
"""Logits are taken for the same if they differ by less than this share of their deviation."""

Logits = NDArray[np.float32]


class _Cache(Struct, frozen=True):
    """One of the model's keys or values."""

    past: str
    present: str
    slots: NDArray[Any]
    """Shapes: [slots, heads, length, head size]."""

    def view(self, rows: int, length: int, flat: NDArray[Any]) -> NDArray[Any]:
        """The beginning of a buffer in that shape."""
        _, heads, _, size = self.slots.shape
        return flat[: rows * heads * length * size].reshape(rows, heads, length, size)

    def buffer(self, rows: int) -> NDArray[Any]:
        """Room for so many rows of full length; memory that nobody writes to costs nothing."""
        _, heads, length, size = self.slots.shape
        return np.empty(rows * heads * length * size, self.slots.dtype)


class _Group:
    """Slots that take their steps together."""

    def __init__(self, slots: tuple[int, ...], lengths: Sequence[int], caches: Sequence[_Cache]) -> None:
        self.slots, self.lengths = slots, list(lengths)
        self.length = max(lengths)
        self.begun = self.length
        self.mask = np.zeros((len(slots), caches[0].slots.shape[2] + 1), np.int64)
        """Shapes: [rows, length]; 0 where a shorter past is filled up."""
        for row, length in enumerate(lengths):
            self.mask[row, self.length - length :] = 1
        self.pasts = [cache.buffer(len(slots)) for cache in caches]
        self.presents = [cache.buffer(len(slots)) for cache in caches]
        for cache, flat in zip(caches, self.pasts, strict=True):
            past = cache.view(len(slots), self.length, flat)
            for row, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
                past[row, :, : self.length - length] = 0
                past[row, :, self.length - length :] = cache.slots[slot, :, :length]

    def stepped(self) -> None:
        """What the step gave is the past of the next."""
        self.pasts, self.presents = self.presents, self.pasts
        self.length += 1
        self.lengths = [length + 1 for length in self.lengths]

    def put_back(self, caches: Sequence[_Cache]) -> None:
        """Write what the steps added to the slots."""
        added = self.length - self.begun
        for cache, flat in zip(caches, self.pasts, strict=True):
            past = cache.view(len(self.slots), self.length, flat)
            for row, (slot, length) in enumerate(zip(self.slots, self.lengths, strict=True)):
                cache.slots[slot, :, length - added : length] = past[row, :, self.begun :]


class GrowingDecoder:
    """A decoder that keeps past and present apart, on the CPU."""

    def __init__(self, session: Any, layout: Layout, slots: int, length: int, chunk: int) -> None:
        self._session, self._names = session, layout.names
        self.slots, self.length = slots, length
        self.vocabulary = vocabulary_size(session, layout)
        self.chunk = max(1, min(chunk, LOGITS_BYTES // (4 * self.vocabulary)))
        kinds = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
        shapes = {value.name: value.shape for value in session.get_inputs()}
        self._caches = [
            _cache(layout, kinds, shapes, part, layer, slots, length)
            for layer in range(layout.layers)
            for part in ("key", "value")
        ]
        self._masked, self._positioned = layout.names["attention_mask"] in kinds, POSITIONS in kinds
        self._merged = BRANCH in kinds
        self._logits_dtype = dtype_of(kinds, layout.names["logits"])
        self._logits = np.empty((max(slots, self.chunk, *_TRIED), self.vocabulary), self._logits_dtype)
        self._drawn = np.empty((slots, self.vocabulary), np.float32)
        self._groups: list[_Group] = []
        self.in_chunks = self.padded = False
        if length > max(_TRIED):
            self.in_chunks = self._reads_in_chunks()
            self.padded = self._masked and slots > 1 and not layout.windowed and self._ignores_padding()

    def prefill(self, slot: int, past: int, tokens: Sequence[int]) -> Logits:
        """Read more of a slot's prompt."""
        self._ungroup([slot])
        if past and not self.in_chunks:
            rows = [self._read(slot, past + place, [token]).copy() for place, token in enumerate(tokens)]
            return np.concatenate(rows)
        return self._read(slot, past, tokens)

    def decode(self, lengths: Sequence[int], tokens: Sequence[int], drawing: Sequence[int]) -> Logits:
        """One more token for each of the slots that draw."""
        groups = self._grouped({slot: lengths[slot] for slot in drawing})
        for group in groups:
            rows = len(group.slots)
            ids = np.array([[tokens[slot]] for slot in group.slots], np.int64)
            positions = np.array([[length] for length in group.lengths], np.int64)
            group.mask[:, group.length] = 1
            past = [cache.view(rows, group.length, flat) for cache, flat in zip(self._caches, group.pasts, strict=True)]
            present = [
                cache.view(rows, group.length + 1, flat)
                for cache, flat in zip(self._caches, group.presents, strict=True)
            ]
            mask = np.ascontiguousarray(group.mask[:, : group.length + 1])
            logits = self._run(ids, positions, mask, past, present)
            group.stepped()
            if len(groups) == 1 and group.slots == tuple(range(rows)):
                self._groups = groups
                return logits
            for row, slot in enumerate(group.slots):
                self._drawn[slot] = logits[row]
        self._groups = groups
        return self._drawn

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the target's first `length` tokens those of the source."""
        self._ungroup([source, target])
        for cache in self._caches:
            cache.slots[target, :, :length] = cache.slots[source, :, :length]

    def _grouped(self, lengths: dict[int, int]) -> list[_Group]:
        """The slots in the groups that can be run, those that go on as they were kept."""
        by_length: dict[int, list[int]] = {}
        for slot, length in lengths.items():
            by_length.setdefault(0 if self.padded else length, []).append(slot)
        wanted = [tuple(slots) for slots in by_length.values()]
        going = {
            group.slots: group
            for group in self._groups
            if group.slots in wanted and group.lengths == [lengths[slot] for slot in group.slots]
        }
        self._ungroup(slot for group in self._groups if group.slots not in going for slot in group.slots)
        return [going.get(slots) or _Group(slots, [lengths[slot] for slot in slots], self._caches) for slots in wanted]

    def _ungroup(self, slots: Iterable[int]) -> None:
        """Let every group go that has one of the slots."""
        gone = set(slots)
        for group in [group for group in self._groups if gone.intersection(group.slots)]:
            group.put_back(self._caches)
            self._groups.remove(group)

    def _read(self, slot: int, past: int, tokens: Sequence[int]) -> Logits:
        count = len(tokens)
        ids = np.array([tokens], np.int64)
        positions = np.arange(past, past + count, dtype=np.int64)[None]
        mask = np.ones((1, past + count), np.int64)
        before = [np.ascontiguousarray(cache.slots[slot : slot + 1, :, :past]) for cache in self._caches]
        after = [cache.view(1, past + count, cache.buffer(1)) for cache in self._caches]
        logits = self._run(ids, positions, mask, before, after)
        for cache, present in zip(self._caches, after, strict=True):
            cache.slots[slot, :, past : past + count] = present[0, :, past:]
        return logits

    def _run(
        self,
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        mask: NDArray[np.int64],
        before: Sequence[NDArray[Any]],
        after: Sequence[NDArray[Any]],
    ) -> Logits:
        """Shapes: ids [rows, tokens], mask [rows, past and tokens] -> [rows and tokens, vocabulary]."""
        binding, names = self._session.io_binding(), self._names
        bind(binding, names["input_ids"], ids)
        if self._masked:
            bind(binding, names["attention_mask"], mask)
        if self._positioned:
            bind(binding, POSITIONS, positions)
        past = before[0].shape[2]
        branch = np.array([past > 0])
        if self._merged:
            binding.bind_input(BRANCH, DEVICE, 0, np.bool_, branch.shape, branch.ctypes.data)
            if not past:
                # SPEC: the branch without a past gets one of a single token all the same, which it does not look at.
                before = [np.zeros((*one.shape[:2], 1, one.shape[3]), one.dtype) for one in before]
        for cache, one, other in zip(self._caches, before, after, strict=True):
            binding.bind_input(cache.past, DEVICE, 0, one.dtype.type, one.shape, one.ctypes.data)
            binding.bind_output(cache.present, DEVICE, 0, other.dtype.type, other.shape, other.ctypes.data)
        shape = (*ids.shape, self.vocabulary)
        binding.bind_output(names["logits"], DEVICE, 0, self._logits_dtype, shape, self._logits.ctypes.data)
        self._session.run_with_iobinding(binding)
        logits = self._logits[: ids.size]
        return logits if logits.dtype == np.float32 else logits.astype(np.float32)

    # What the model can do, found out...

    def _reads_in_chunks(self) -> bool:
        """Whether a prompt in two parts gives what it gives as a whole: some graphs want all of it, or one token."""
        prompt = _prompt(0, self.vocabulary)
        whole = self._read(0, 0, prompt)[-1].copy()
        try:
            self._read(0, 0, prompt[:3])
            return _alike(whole, self._read(0, 3, prompt[3:])[-1])
        except Exception:  # whatever it is, the model is run in the way that always goes
            return False

    def _ignores_padding(self) -> bool:
        """Whether two pasts of different lengths, side by side, give what each gives alone."""
        prompts = [_prompt(slot, self.vocabulary) for slot in range(2)]
        alone = []
        for slot, prompt in enumerate(prompts):
            self.prefill(slot, 0, prompt)
            alone.append(self._read(slot, len(prompt), [7 % self.vocabulary])[-1].copy())
        self.padded = True
        try:
            together = self.decode([len(prompt) for prompt in prompts], [7 % self.vocabulary] * 2, [0, 1])
            return all(_alike(one, together[slot]) for slot, one in enumerate(alone))
        except Exception:
            return False
        finally:
            self._groups = []
            self.padded = False


def _prompt(slot: int, vocabulary: int) -> list[int]:
    draw = np.random.Generator(np.random.PCG64(slot))
    tokens: list[int] = draw.integers(0, vocabulary, _TRIED[slot]).tolist()
    return tokens


def _alike(left: Logits, right: Logits) -> bool:
    return bool(np.abs(left - right).max() <= _LIKE * max(float(left.std()), 1e-6))


def _cache(
    layout: Layout, kinds: dict[str, str], shapes: dict[str, Any], part: str, layer: int, slots: int, length: int
) -> _Cache:
    past, present = (layout.names[f"{when}_{part}_names"] % layer for when in ("past", "present"))
    dtype, shape = dtype_of(kinds, past), shapes[past]
    if dtype_of(kinds, present) != dtype:
        raise LoadFailed(f"{past!r} and {present!r} must be of one type")
    if len(shape) != 4:
        raise LoadFailed(f"{past!r} must have batch, heads, length and head size; it has {len(shape)} dimensions")
    heads = shape[1] if isinstance(shape[1], int) else layout.kv_heads
    size = shape[3] if isinstance(shape[3], int) else layout.head_size
    return _Cache(past, present, np.zeros((slots, heads, length, size), dtype))
