"""What the budget of the models' memory did, as metrics."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gateway.residency import ModelMemory


def collect(memory: ModelMemory | None) -> Iterator[Metric]:
    """The families; none where there is no budget."""
    if memory is None:
        return
    budget = GaugeMetricFamily("tensorgate_model_memory_budget_bytes", "What all models may take; 0 for no bound")
    budget.add_metric([], memory.bounds.budget_bytes)
    held = GaugeMetricFamily(
        "tensorgate_model_memory_bytes", "What a version takes; 0 while it is unloaded", labels=["model", "version"]
    )
    seconds = GaugeMetricFamily(
        "tensorgate_model_load_seconds", "How long its last load took", labels=["model", "version"]
    )
    for one in memory.residents:
        labels = [one.claim.model, str(one.claim.version)]
        held.add_metric(labels, one.held)
        seconds.add_metric(labels, one.load_seconds)
    evictions = CounterMetricFamily(
        "tensorgate_model_evictions", "Times that a model was unloaded while it was served", labels=["model", "reason"]
    )
    for key, count in memory.evictions.items():
        evictions.add_metric(list(key), count)
    reloads = CounterMetricFamily(
        "tensorgate_model_reloads", "Times that a request had its model loaded again", labels=["model"]
    )
    for model, count in memory.reloads.items():
        reloads.add_metric([model], count)
    yield from (budget, held, seconds, evictions, reloads)
