"""The running batch, over a decoder whose next token depends on every token that the slot should hold."""

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest
import tinychat

from backends.generate.scheduler import Job, Scheduler
from backends.generate.sequence import Choice, Language
from backends.generate.settings import Settings
from gateway.errors import InferenceFailed, NotReady, Overloaded

FIRST = 4
"""Lower tokens are control tokens."""


def _next(tokens: Sequence[int]) -> int:
    """The token that follows: a digest of all before it."""
    digest = len(tokens)
    for token in tokens:
        digest = (digest * 31 + token + 1) % 1_000_003
    return FIRST + digest % (tinychat.SIZE - FIRST)


def _expected(prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(_next(tokens))
    return tokens


class Recorder:
    """A decoder that remembers what each slot was fed, and where."""

    vocabulary = tinychat.SIZE

    def __init__(self, slots: int = 4, length: int = 64, chunk: int = 8) -> None:
        self.slots, self.length, self.chunk = slots, length, chunk
        self.memory = np.full((slots, length), -1)
        self.prefills: list[tuple[int, int, int]] = []
        self.decodes: list[int] = []
        self.broken = False

    def prefill(self, slot: int, past: int, tokens: Sequence[int]) -> np.ndarray:
        """Note the tokens."""
        assert len(tokens) <= self.chunk
        self.memory[slot, past : past + len(tokens)] = tokens
        self.prefills.append((slot, past, len(tokens)))
        return np.stack([self._logits(slot, past + place + 1) for place in range(len(tokens))])

    def decode(self, lengths: Sequence[int], tokens: Sequence[int], drawing: Sequence[int]) -> np.ndarray:
        """Note one token a slot."""
        if self.broken:
            raise RuntimeError("broken")
        self.decodes.append(len(tokens))
        for slot, (length, token) in enumerate(zip(lengths, tokens, strict=True)):
            self.memory[slot, length] = token
        return np.stack([self._logits(slot, length + 1) for slot, length in enumerate(lengths)])

    def copy(self, source: int, target: int, length: int) -> None:
        """As it says."""
        self.memory[target, :length] = self.memory[source, :length]

    def _logits(self, slot: int, length: int) -> np.ndarray:
        logits = np.zeros(tinychat.SIZE, np.float32)
        logits[_next(self.memory[slot, :length].tolist())] = 1
        return logits


def _choice(prompt: Sequence[int], count: int, index: int = 0) -> Choice:
    language = Language(tinychat.vocabulary(), frozenset({2}), frozenset(), 64)
    return Choice(index, list(prompt), Settings(max_tokens=count, temperature=0), language)


def _scheduler(decoder: Recorder, queue: int = 100) -> Scheduler:
    return Scheduler(decoder, queue, "test", started=False)


def _finish(scheduler: Scheduler) -> None:
    for _ in range(10_000):
        if not scheduler.living:
            return
        scheduler.step()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("seed", range(12))
def test_every_choice_gets_its_own_text(seed: int) -> None:
    """Whoever joins, leaves or shares a beginning meanwhile, each choice reads and draws exactly its own tokens."""

    async def main() -> None:
        draw = random.Random(seed)
        decoder = Recorder(slots=draw.choice([1, 2, 4, 7]))
        scheduler = _scheduler(decoder)
        beginnings = [[draw.randrange(FIRST, 40) for _ in range(30)] for _ in range(3)]
        running: list[tuple[Job, list[list[int]]]] = []
        for _ in range(60):
            if draw.random() < 0.5:
                prompt = [*draw.choice(beginnings)[: draw.randrange(1, 30)], draw.randrange(FIRST, 1000)]
                counts = [draw.randrange(1, 30) for _ in range(draw.choice([1, 1, 3]))]
                choices = [_choice(prompt, count, index) for index, count in enumerate(counts)]
                running.append((Job(choices, False), [_expected(prompt, count) for count in counts]))
                scheduler.submit(running[-1][0])
            if running and draw.random() < 0.15:
                draw.choice(running)[0].cancelled = True
            scheduler.step()
        _finish(scheduler)
        told = [(job, expected) for job, expected in running if not job.cancelled]
        assert told
        for job, expected in told:
            assert expected == [choice.tokens for choice in job.choices]
            assert len(expected) == len(await job.deltas())

    asyncio.run(main())


def test_long_prompt_does_not_stall_the_others() -> None:
    """While a prompt is read chunk by chunk, whoever writes already gets a token at each step."""

    async def main() -> None:
        decoder = Recorder(length=100)
        scheduler = _scheduler(decoder)
        writing = _choice([5, 6], 40)
        scheduler.submit(Job([writing], False))
        scheduler.step()
        reading = _choice(range(10, 50), 2)
        scheduler.submit(Job([reading], False))
        before = writing.completion_tokens
        for step in range(1, 6):
            scheduler.step()
            assert before + step == writing.completion_tokens
        assert [(1, past, 8) for past in (0, 8, 16, 24, 32)] == decoder.prefills[1:]
        assert reading.completion_tokens == 2

    asyncio.run(main())


def test_cancelled_is_gone_with_the_next_step() -> None:
    """A slot is free one step after its reader has left, and a waiting choice is never begun."""

    async def main() -> None:
        decoder = Recorder(slots=1)
        scheduler = _scheduler(decoder)
        first, second, third = (Job([_choice([token], 50)], True) for token in (5, 6, 7))
        for job in (first, second, third):
            scheduler.submit(job)
        scheduler.step()
        first.cancelled = second.cancelled = True
        scheduler.step()
        assert scheduler.living == 1
        assert third.choices[0].completion_tokens == 2
        assert second.choices[0].completion_tokens == 0

    asyncio.run(main())


def test_a_stream_tells_of_its_slot() -> None:
    """Who has a slot is told so while the prompt is still read, who waits is not; then the text comes as ever."""

    async def main() -> None:
        decoder = Recorder(slots=1)
        scheduler = _scheduler(decoder)
        prompt = [FIRST + place % 20 for place in range(3 * decoder.chunk)]
        reading, waiting = (Job([_choice(prompt, 3)], True, begins=True) for _ in range(2))
        scheduler.submit(reading)
        scheduler.submit(waiting)
        scheduler.step()
        assert [(delta.begins, delta.text) for delta in await reading.deltas()] == [(True, "")]
        assert reading.choices[0].completion_tokens == 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting.deltas(), 0.05)
        _finish(scheduler)
        assert (await reading.deltas())[-1].finish_reason == "length"
        (told,) = await waiting.deltas()
        assert (told.begins, told.finish_reason) == (True, "length")

    asyncio.run(main())


def test_batch_closes_up() -> None:
    """Once the first slots are free, those behind move there, so that a step computes no more than it must."""

    async def main() -> None:
        decoder = Recorder()
        scheduler = _scheduler(decoder)
        short = [Job([_choice([token], 2)], False) for token in (5, 6, 7)]
        last = _choice([8, 9], 10)
        for job in [*short, Job([last], False)]:
            scheduler.submit(job)
        _finish(scheduler)
        assert decoder.decodes[-1] == 1
        assert _expected([8, 9], 10) == last.tokens

    asyncio.run(main())


def test_choices_of_a_prompt_read_it_once() -> None:
    """Of n choices the first reads the prompt; the others copy it, and read its last token only."""

    async def main() -> None:
        decoder = Recorder(chunk=32)
        scheduler = _scheduler(decoder)
        prompt = list(range(10, 30))
        scheduler.submit(Job([_choice(prompt, 3, index) for index in range(3)], False))
        _finish(scheduler)
        assert [count for _, _, count in decoder.prefills] == [20, 1, 1]

    asyncio.run(main())


def test_full_is_overloaded() -> None:
    """More choices than slots and queue hold are refused, and what is refused takes no room."""

    async def main() -> None:
        scheduler = _scheduler(Recorder(slots=1), queue=1)
        scheduler.submit(Job([_choice([5], 2)], False))
        with pytest.raises(Overloaded):
            scheduler.submit(Job([_choice([6], 2), _choice([7], 2, 1)], False))
        scheduler.submit(Job([_choice([8], 2)], False))
        assert scheduler.living == 2

    asyncio.run(main())


def test_failed_step_fails_its_choices_only() -> None:
    """Whoever is in a step that fails is told; whoever comes next is answered."""

    async def main() -> None:
        decoder = Recorder()
        scheduler = _scheduler(decoder)
        job = Job([_choice([5], 9)], False)
        scheduler.submit(job)
        decoder.broken = True
        scheduler.step()
        with pytest.raises(InferenceFailed, match="the model failed while it was writing"):
            await job.deltas()
        decoder.broken = False
        later = _choice([5], 3)
        scheduler.submit(Job([later], False))
        _finish(scheduler)
        assert _expected([5], 3) == later.tokens

    asyncio.run(main())


def test_batch_survives_its_own_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a step breaks outside of any choice, every reader is told and later ones are answered."""

    async def main() -> None:
        scheduler = Scheduler(Recorder(slots=1), 5, "test")
        jobs = [Job([_choice([5], 20)], False) for _ in range(3)]
        with monkeypatch.context() as patched:
            patched.setattr(Scheduler, "step", lambda _: 1 / 0)
            for job in jobs:
                scheduler.submit(job)
            for job in jobs:
                with pytest.raises(InferenceFailed):
                    await job.deltas()
        later = Job([_choice([5], 3)], False)
        scheduler.submit(later)
        await later.deltas()
        assert _expected([5], 3) == later.choices[0].tokens
        await asyncio.to_thread(scheduler.close)

    asyncio.run(main())


def test_close_tells_whoever_waits() -> None:
    """A model that is unloaded ends its answers with an error, and takes no more."""

    async def main() -> None:
        scheduler = Scheduler(Recorder(slots=1), 200, "test")
        jobs = [Job([_choice([5], 60)], True) for _ in range(200)]
        for job in jobs:
            scheduler.submit(job)
        await asyncio.to_thread(scheduler.close)
        with pytest.raises(NotReady):
            await jobs[-1].deltas()
        with pytest.raises(NotReady):
            scheduler.submit(Job([_choice([5], 1)], False))

    asyncio.run(main())


def test_a_reader_is_woken_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that come faster than the pace are told together, before a step that takes long, and at the end."""

    async def told(job: Job) -> list[int] | None:
        """What the reader has by now; None where it still waits."""
        reading = asyncio.ensure_future(job.deltas())
        for _ in range(4):
            await asyncio.sleep(0)
        if reading.done():
            return [token for delta in reading.result() for token in delta.tokens]
        reading.cancel()
        return None

    async def main() -> None:
        monkeypatch.setattr("backends.generate.scheduler.PACE_SECONDS", 1e9)
        monkeypatch.setattr("backends.generate.scheduler.time.monotonic", lambda: 2e9)
        scheduler = _scheduler(Recorder())
        job, other = (Job([_choice([5, 6, index], 8)], True) for index in (7, 8))
        expected = _expected([5, 6, 7], 8)[3:]
        scheduler.submit(job)
        scheduler.step()
        assert expected[:2] == await told(job), "the first token is told at once"
        scheduler.step()
        scheduler.step()
        assert await told(job) is None
        scheduler.submit(other)
        scheduler.step()
        assert expected[2:5] == await told(job), "and what is held back, before another's prompt is read"
        _finish(scheduler)
        assert expected[5:] == await told(job)
        assert await told(job) == []

    asyncio.run(main())
