"""Prometheus instruments, made from the metric list; what is looked up by a label is looked up once."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from worker.telemetry.metric_list import Kind, Metric, Source


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    spec = metric.value
    return Counter(spec.name, spec.help, spec.label_names, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry) -> Histogram:
    spec = metric.value
    return Histogram(spec.name, spec.help, spec.label_names, buckets=spec.buckets, registry=registry)


def counters_by_value(metric: Metric, registry: CollectorRegistry) -> Mapping[str, Counter]:
    """A counter for each value of the metric's one label, there (as 0) before the first event: alerts need that."""
    whole = counter(metric, registry)
    return {value: whole.labels(value) for value in _values(metric)}


def histograms_by_value(metric: Metric, registry: CollectorRegistry) -> Mapping[str, Histogram]:
    """The same of a histogram."""
    whole = histogram(metric, registry)
    return {value: whole.labels(value) for value in _values(metric)}


def _values(metric: Metric) -> tuple[str, ...]:
    [label] = metric.value.labels
    return label.values


class Reading(NamedTuple):
    """One value of a metric, as it is now."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def one_hot(metric: Metric, current: str, *labels: str) -> Iterable[Reading]:
    """1 for the current value of the metric's last label, 0 for the others."""
    return [Reading(metric, float(value == current), (*labels, value)) for value in metric.value.labels[-1].values]


Read = Callable[[], Iterable[Reading]]


class Scraped(Collector):
    """Metrics read from the worker's state when they are asked for: they cost nothing in between."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reads: list[Read] = []
        registry.register(self)

    def add(self, read: Read) -> None:
        self._reads.append(read)

    def collect(self) -> Iterable[Family]:
        families: dict[Metric, CounterMetricFamily | GaugeMetricFamily] = {}
        for reading in (reading for read in self._reads for reading in read()):
            family = families.get(reading.metric)
            if family is None:
                family = families[reading.metric] = _family(reading.metric)
            family.add_metric(reading.labels, reading.value)
        return families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    spec = metric.value
    if spec.source is not Source.SCRAPE:
        raise ValueError(f"{spec.name} is counted as things happen, not read")
    family = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
    return family(spec.name, spec.help, labels=spec.label_names)


class LlmInstruments:
    """The metrics of calls; those of one provider and model are bound together, at its first call."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = counter(Metric.LLM_CALLS, registry)
        self._tokens = counter(Metric.LLM_TOKENS, registry)
        self._cost = counter(Metric.LLM_COST, registry)
        self._unpriced = counter(Metric.LLM_UNPRICED, registry)
        self._seconds = histogram(Metric.LLM_CALL, registry)
        self._wait = histogram(Metric.LIMITER_WAIT, registry)
        self._bound: dict[tuple[str, str], ModelInstruments] = {}

    def of(self, provider: str, model: str) -> "ModelInstruments":
        bound = self._bound.get((provider, model))
        if bound is None:
            bound = self._bound[provider, model] = ModelInstruments(
                calls=self._by_last(Metric.LLM_CALLS, self._calls, provider, model),
                tokens=self._by_last(Metric.LLM_TOKENS, self._tokens, provider, model),
                cost_usd=self._cost.labels(provider, model),
                unpriced=self._unpriced.labels(provider, model),
                seconds=self._seconds.labels(provider, model),
                wait_seconds=self._wait.labels(provider, model),
            )
        return bound

    @staticmethod
    def _by_last(metric: Metric, whole: Counter, *labels: str) -> Mapping[str, Counter]:
        return {value: whole.labels(*labels, value) for value in metric.value.labels[-1].values}


class ModelInstruments(NamedTuple):
    """Of one provider and model."""

    calls: Mapping[str, Counter]
    tokens: Mapping[str, Counter]
    cost_usd: Counter
    unpriced: Counter
    seconds: Histogram
    wait_seconds: Histogram
