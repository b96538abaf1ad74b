"""ONNX Runtime GenAI's own loop: `genai_loop.py FOLDER PLAN.json` prints a round's figures as JSON, a line each.

Runs in its environment. Several answers at a time are a generator each, in threads: it has no batch that answers join.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import onnxruntime_genai as genai


def main(folder: str, plan: str) -> None:
    """Every round of the plan: prompts as token ids, and the number of tokens to answer with."""
    model = genai.Model(folder)
    for given in json.loads(Path(plan).read_text()):
        print(json.dumps(_round(model, given["prompts"], given["tokens"])), flush=True)


def _round(model: Any, prompts: list[list[int]], count: int) -> dict[str, Any]:
    firsts: list[float] = []
    gaps: list[float] = []
    answers: dict[int, list[int]] = {}

    def answer(place: int) -> None:
        began = last = time.perf_counter()
        most = len(prompts[place]) + count
        settings = genai.GeneratorParams(model)
        settings.set_search_options(max_length=most, min_length=most, do_sample=False)
        generator = genai.Generator(model, settings)
        generator.append_tokens(prompts[place])
        answers[place] = []
        while not generator.is_done():
            generator.generate_next_token()
            now = time.perf_counter()
            (gaps if answers[place] else firsts).append((now - (last if answers[place] else began)) * 1e3)
            last = now
            answers[place].append(int(generator.get_next_tokens()[0]))

    threads = [threading.Thread(target=answer, args=[place]) for place in range(len(prompts))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    tokens = sum(map(len, answers.values()))
    return {"tokens_per_s": tokens / seconds, "firsts": firsts, "gaps": gaps, "first_answer": answers[0]}


main(*sys.argv[1:])
