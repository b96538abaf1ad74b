"""The metrics of many processes as one page: counts are added up, and go on when a process has ended."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric, generate_latest

from gateway.orders import Family

OF_EACH = ("process_", "python_", "tensorgate_memory_")
"""What only means something for one process, so that its samples get the label `process`."""
OF_ALL = ("tensorgate_model_state", "tensorgate_model_provider", "tensorgate_shadow_")
"""Gauges that say the same in every process, but for the moment of a change."""

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def families_of(metrics: Iterable[Metric]) -> tuple[Family, ...]:
    """The metrics as they are sent to the supervisor."""
    return tuple(
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            tuple((sample.name, sample.labels, float(sample.value)) for sample in metric.samples),
        )
        for metric in metrics
    )


def counted(families: Iterable[Family]) -> tuple[Family, ...]:
    """Of those, what counts on when the process has ended."""
    return tuple(
        family for family in families if family.kind in ("counter", "histogram") and not family.name.startswith(OF_EACH)
    )


def joined(parts: Iterable[tuple[Family, ...]]) -> tuple[Family, ...]:
    """The families of many processes as those of one."""
    return tuple(_Merged(parts).families())


def page(processes: Mapping[str, tuple[Family, ...]], ended: tuple[Family, ...]) -> bytes:
    """The page of metrics; process's name to its families, and what ended ones have counted."""
    named = [tuple(_labelled(family, name) for family in families) for name, families in processes.items()]
    return generate_latest(_Registry(joined([*named, ended])))


class _Registry:
    """What prometheus_client writes a page of."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.help, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric


class _Merged:
    """Families in the making."""

    def __init__(self, parts: Iterable[tuple[Family, ...]]) -> None:
        self._heads: dict[str, Family] = {}
        self._samples: dict[str, Samples] = {}
        for families in parts:
            for family in families:
                self._add(family)

    def _add(self, family: Family) -> None:
        self._heads.setdefault(family.name, family)
        samples = self._samples.setdefault(family.name, {})
        shared = family.kind not in ("counter", "histogram") and family.name.startswith(OF_ALL)
        for name, labels, value in family.samples:
            key = (name, tuple(labels.items()))
            before = samples.get(key)
            samples[key] = value if before is None else max(before, value) if shared else before + value

    def families(self) -> Iterator[Family]:
        for name, head in self._heads.items():
            samples = tuple((sample, dict(labels), value) for (sample, labels), value in self._samples[name].items())
            yield Family(name, head.kind, head.help, samples)


def _labelled(family: Family, process: str) -> Family:
    if not family.name.startswith(OF_EACH):
        return family
    samples = tuple((name, {**labels, "process": process}, value) for name, labels, value in family.samples)
    return Family(family.name, family.kind, family.help, samples)
