"""Metrics for Prometheus, as its text format has them; `prometheus_client` writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mrflight.page.http_server import Answer, Route
from mrflight.page.measured import Measured

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "mrflight_"


def metrics_route(measure: Callable[[], Iterable[Measured]]) -> Route:
    """Return the route ``/metrics`` of a process, with what it measures and the usual metrics."""
    return Route(lambda: Answer(*exposition(measure())))


def exposition(measured: Iterable[Measured]) -> tuple[str, bytes]:
    """Return the media type and the text of metrics, and of this process's memory, time and files.

    It is for a thread of a server: `prometheus_client` is loaded here, which takes a while.
    """
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collector([_build_info(), *measured]))
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)


class _Collector:
    def __init__(self, measured: Sequence[Measured]) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        for each in self._measured:
            family = CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily
            metric = family(
                PREFIX + each.name, each.help, labels=[each.label] if each.label else []
            )
            if isinstance(each.values, Mapping):
                for value_of_label, value in each.values.items():
                    metric.add_metric([value_of_label], value)
            else:
                metric.add_metric([], each.values)
            yield metric


def _build_info() -> Measured:
    from mrflight import __version__

    return Measured(
        "build_info", "1, with the version of mrflight as a label.", {__version__: 1}, "version"
    )
