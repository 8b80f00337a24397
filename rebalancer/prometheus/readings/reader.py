"""Usage of a cluster's nodes and pods, as one cycle needs it.

All queries are evaluated at one moment: the first response's evaluation time is passed to all later queries. That
response also shows the server's clock, which is compared with the snapshot's, because a sample's age depends on it.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.ports import Progress
from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError
from rebalancer.model.measured.usage import Contention, Usage
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus.connection.client import Answer, PrometheusClient
from rebalancer.prometheus.connection.probe import Probe, missing_exporters, probe
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import (
    NODE_BY_FIELD,
    ContentionQueries,
    Query,
    contention_queries,
    queries,
    resource_queries,
    stabilization_offsets,
    swap_query,
)
from rebalancer.prometheus.promql.units import MOST_PLAUSIBLE_SHARE, capacities, check_unit, millicores_per_unit
from rebalancer.prometheus.readings.contention import read_contention
from rebalancer.prometheus.readings.nodes import Gathered, NodeMap, gather, oldest, shown
from rebalancer.prometheus.readings.pods import PodUsage, pod_usage
from rebalancer.prometheus.readings.resources import read_resources, read_swap

T = TypeVar("T")

SOURCE = "Prometheus"
CLOCK_SLACK_SECONDS = 120.0
_STEPS = 5


class PrometheusUsage:
    """Reads measured usage from Prometheus; implements `model.decisions.ports.UsageReader`."""

    def __init__(
        self,
        usage: UsageSource,
        progress: Progress,
        *,
        contention: bool = False,
        stabilized: Collection[str] = (),
        beside: "PrometheusUsage | None" = None,
    ) -> None:
        """`contention`: also read CPU contention. `stabilized`: names of the resources that a node can be hot by.
        `beside`: a reader of the same Prometheus, also in another thread, whose table of series is shared.

        Raises ConfigError for credentials, a CA or label names that can't be used; no query is sent yet.
        """
        self._queries = queries(usage)
        self._contention = contention_queries(usage) if contention else None
        self._resources = resource_queries(usage)
        self._stabilized = stabilized
        self._swap = swap_query(usage)
        assert usage.prometheus is not None  # queries() has raised a ConfigError otherwise
        self._usage = usage
        self._prometheus = usage.prometheus
        self._client = PrometheusClient(usage.prometheus)
        self._progress = progress
        pod = usage.prometheus.pod_cpu
        self._pod_decoder: decode.PodDecoder = (
            decode.PodDecoder(namespace=pod.namespace_label, pod=pod.pod_label, node=pod.node_label)
            if beside is None
            else beside._pod_decoder
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def probe(self) -> Probe:
        """The findings for `doctor`. Raises ConnectError when Prometheus can't be reached."""
        self._client.renew()
        return probe(self._client, self._queries, self._resources, needed=self._stabilized)

    def read(self, snapshot: ClusterSnapshot) -> Usage:
        """Usage of the snapshot's nodes and pods.

        Raises ConnectError; ConfigError when a query is refused or no response is about this cluster; UnsafeDataError
        when Prometheus' clock is more than two minutes from the snapshot's.
        """
        self._client.renew()
        warnings: list[str] = []
        vector = self._decoded(self._queries.node, decode.vector, warnings, step=0)
        if not len(vector.values):
            raise self._nothing_there()
        at = vector.at
        if not math.isfinite(at):
            raise ConfigError(f"{self._queries.node.field}: expected numbers, got native histograms only")
        self._check_clock(at, snapshot.taken)
        node_map = self._node_map(snapshot, at)
        now = self._gathered(vector, node_map)
        if not now.has_series.any() and len(snapshot.nodes):
            raise self._no_node_matches(vector.labels)
        scale = millicores_per_unit(snapshot.nodes, self._queries.node_unit)
        millicores = now.values * scale
        fresh = self._decoded(self._queries.freshness, decode.vector, warnings, at=at, step=1)
        raw_times = oldest(labels=fresh.labels, values=fresh.values, node_map=node_map)
        problems = self._problems(snapshot, now, millicores, raw_times, at)
        check_unit(
            millicores / capacities(snapshot.nodes),
            snapshot.nodes,
            known=int(np.count_nonzero(np.isfinite(millicores))),
            field=self._queries.node.field,
            unit=self._queries.node_unit,
            hint=" (unit: share or cores)",
        )
        times, samples = self._history(snapshot, node_map, scale, at, warnings)
        pods = self._pods(snapshot, node_map, at, warnings)
        contention = (
            None
            if self._contention is None
            else self._contention_of(self._contention, snapshot, node_map, at, warnings)
        )
        resources, notes = read_resources(
            wanted=self._resources,
            snapshot=snapshot,
            node_map=node_map,
            node_vector=lambda query, partial: self._decoded(query, decode.vector, partial, at=at),
            pod_vector=lambda query, partial: self._decoded(query, self._pod_decoder.vector, partial, at=at),
            node_samples=lambda query: self._ranged(query, node_map, at, warnings, keep_older=False),
            warnings=warnings,
            stabilized=self._stabilized,
        )
        swap = (
            read_swap(self._swap, node_map, lambda query, partial: self._decoded(query, decode.vector, partial, at=at))
            if MEMORY in self._stabilized
            else None
        )
        self._progress.step(SOURCE, _STEPS, _STEPS)
        bad = list(problems)
        millicores[bad] = np.nan
        if contention is not None:
            contention.node_pressure[bad] = np.nan
        for each in resources.values():
            each.node[bad] = np.nan
            each.samples[:, bad] = np.nan
        times, samples = np.vstack([times, raw_times]), np.vstack([samples, millicores])
        times[:, bad] = np.nan
        samples[:, bad] = np.nan
        return Usage(
            source=SOURCE,
            at=at,
            window_seconds=self._usage.rate_window,
            node_cpu_millicores=millicores,
            pod_cpu_millicores=pods.pods,
            sample_times=times,
            samples=samples,
            sample_seconds=next(reversed(stabilization_offsets(self._usage)), 0.0),
            departed_millicores=pods.departed,
            contention=contention,
            resources=resources,
            swap_in_pages=swap,
            problems=problems,
            warnings=tuple(dict.fromkeys(warnings)),
            notes=tuple(notes),
        )

    def _decoded(
        self,
        query: Query,
        decoder: Callable[[decode.Result], T],
        warnings: list[str],
        *,
        step: int | None = None,
        at: float | None = None,
    ) -> T:
        if step is not None:
            self._progress.step(SOURCE, step, _STEPS)
        return self._read(query, self._client.query(query, at=at), decoder, warnings)

    def _read(self, query: Query, answer: Answer, decoder: Callable[[decode.Result], T], warnings: list[str]) -> T:
        warnings.extend(f"{query.field}: {each}" for each in answer.warnings)
        try:
            return decoder(answer.result)
        except decode.NoSeriesError as error:
            raise ConfigError(f"{query.field}: {error}") from None
        except decode.BadAnswerError as error:
            raise ConnectError(f"Prometheus at {self._client.url}: broken answer to {query.field}: {error}") from None

    def _check_clock(self, at: float, taken: float) -> None:
        apart = at - taken
        if abs(apart) > CLOCK_SLACK_SECONDS:
            way = "ahead of" if apart > 0 else "behind"
            raise UnsafeDataError(
                f"{Reason.CLOCK_SKEW.sentence}: Prometheus at {self._client.url} is {abs(apart):.0f} s {way} "
                f"the cluster's snapshot (Prometheus {at:.0f}, snapshot {taken:.0f})"
            )

    def _node_map(self, snapshot: ClusterSnapshot, at: float) -> NodeMap:
        node = self._prometheus.node_cpu

        def label_sets(metric: str) -> Sequence[Mapping[str, str]]:
            query = Query(field=NODE_BY_FIELD, promql=metric)
            # a partial lookup may leave nodes unmatched, which are then skipped: no further measure is needed
            return self._decoded(query, decode.vector, [], at=at).labels

        return NodeMap(nodes=snapshot.nodes, label=node.label, by=node.node_by, label_sets=label_sets)

    def _gathered(self, vector: decode.Vector, node_map: NodeMap) -> Gathered:
        merge_on = self._prometheus.node_cpu.label if self._queries.node_is_default else None
        return gather(
            labels=vector.labels,
            values=vector.values,
            node_map=node_map,
            merge_target_on=merge_on,
        )

    def _problems(
        self, snapshot: ClusterSnapshot, now: Gathered, millicores: Floats, raw_times: Floats, at: float
    ) -> dict[int, Refusal]:
        problems: dict[int, Refusal] = {}
        capacity = snapshot.nodes.cpu_capacity_millicores
        for index in range(len(snapshot.nodes)):
            refusal = self._problem(
                has_series=bool(now.has_series[index]),
                claimed_by=now.ambiguous.get(index),
                millicores=float(millicores[index]),
                capacity=float(capacity[index]),
                age=at - float(raw_times[index]),
            )
            if refusal is not None:
                problems[index] = refusal
        return problems

    def _problem(
        self, *, has_series: bool, claimed_by: str | None, millicores: float, capacity: float, age: float
    ) -> Refusal | None:
        if claimed_by is not None:
            return Refusal.of(Reason.AMBIGUOUS_NODE, claimed_by)
        if not has_series:
            return Refusal.of(Reason.NO_SAMPLE)
        if not math.isfinite(millicores):
            return Refusal.of(
                Reason.NOT_FINITE, f"{millicores:g}" if capacity > 0 else "the node's capacity is unknown"
            )
        if millicores < 0:
            return Refusal.of(Reason.NOT_FINITE, f"{millicores:g} millicores")
        if _implausible(millicores, capacity):
            return Refusal.of(Reason.NOT_FINITE, f"{millicores / capacity:.4g} times the node's capacity")
        if not math.isfinite(age):
            return Refusal.of(
                Reason.STALE_SAMPLE, f"its raw series has ended ({self._queries.freshness.field} has none)"
            )
        if age > self._usage.max_sample_age:
            return Refusal.of(
                Reason.STALE_SAMPLE, f"{age:.0f} s old, at most {self._usage.max_sample_age:.0f} s (maxSampleAge)"
            )
        if age < -CLOCK_SLACK_SECONDS:
            return Refusal.of(Reason.CLOCK_SKEW, f"its raw sample lies {-age:.0f} s in the future")
        return None

    def _history(
        self, snapshot: ClusterSnapshot, node_map: NodeMap, scale: Floats, at: float, warnings: list[str]
    ) -> tuple[Floats, Floats]:
        """Raw times and millicores before now, each (readings, nodes), oldest first."""
        self._progress.step(SOURCE, 2, _STEPS)
        samples = self._ranged(self._queries.node, node_map, at, warnings, keep_older=False) * scale
        self._progress.step(SOURCE, 3, _STEPS)
        times = self._ranged(self._queries.freshness, node_map, at, warnings, keep_older=True)
        capacity = snapshot.nodes.cpu_capacity_millicores
        with np.errstate(invalid="ignore"):
            bad = ~np.isfinite(samples) | (samples < 0) | ((capacity > 0) & (samples > capacity * MOST_PLAUSIBLE_SHARE))
        samples[bad] = np.nan
        times[bad] = np.nan
        return times, samples

    def _ranged(self, query: Query, node_map: NodeMap, at: float, warnings: list[str], *, keep_older: bool) -> Floats:
        """(readings, nodes) over the stabilization window before now, oldest first."""
        offsets = stabilization_offsets(self._usage)
        if not offsets:
            return np.empty((0, node_map.count))
        step = offsets[-1]
        start, end = at - offsets[0], at - step
        answer = self._client.query_range(query, start=start, end=end, step=step)
        matrix = self._read(query, answer, decode.matrix, warnings)
        shape = len(offsets), node_map.count
        return _readings(matrix, node_map, shape=shape, start=start, step=step, keep_older=keep_older)

    def _pods(self, snapshot: ClusterSnapshot, node_map: NodeMap, at: float, warnings: list[str]) -> PodUsage:
        vector = self._decoded(self._queries.pod, self._pod_decoder.vector, warnings, at=at, step=4)
        usage = pod_usage(vector=vector, snapshot=snapshot, node_map=node_map)
        if not usage.matched and snapshot.active.any():
            # without pods nothing can be chosen; reported as a gap in the data, so that the cause is visible
            warnings.append(
                f"{self._queries.pod.field}: none of its {len(vector.values)} series is about a pod of this cluster"
                if len(vector.values)
                else f"{self._queries.pod.field}: no series: does Prometheus scrape cAdvisor?"
            )
        return usage

    def _contention_of(
        self, queries: ContentionQueries, snapshot: ClusterSnapshot, node_map: NodeMap, at: float, warnings: list[str]
    ) -> Contention:
        return read_contention(
            queries=queries,
            snapshot=snapshot,
            node_map=node_map,
            node_vector=lambda query: self._decoded(query, decode.vector, warnings, at=at),
            pod_vector=lambda query: self._decoded(query, self._pod_decoder.vector, warnings, at=at),
        )

    def _nothing_there(self) -> ConfigError:
        query = self._queries.node
        return ConfigError(
            f"{query.field}: Prometheus at {self._client.url} has no series for it: {missing_exporters(self._client)}; "
            f"rateWindow must span at least two scrapes; query: {query.promql}"
        )

    def _no_node_matches(self, labels: Sequence[Mapping[str, str]]) -> ConfigError:
        node = self._prometheus.node_cpu
        return ConfigError(
            f"{NODE_BY_FIELD}: none of {len(labels)} series at {self._client.url} names a node of this cluster by its "
            f"label {node.label} ({node.node_by}), for example {shown(labels[0])}: is it another cluster's Prometheus?"
        )


def _implausible(millicores: float, capacity: float) -> bool:
    return capacity > 0 and millicores > capacity * MOST_PLAUSIBLE_SHARE


def _readings(
    matrix: decode.Matrix, node_map: NodeMap, *, shape: tuple[int, int], start: float, step: float, keep_older: bool
) -> Floats:
    """A matrix as (readings, nodes). Of two values of one reading the smaller counts with `keep_older`, else the
    larger.

    Nodes with ambiguous series are left out by the caller, which knows them from the current reading.
    """
    out = np.full(shape, np.nan)
    choose = np.fmin if keep_older else np.fmax
    for labels, times, values in zip(matrix.labels, matrix.times, matrix.values, strict=True):
        found = node_map.find(labels)
        if len(found) != 1 or not len(times):
            continue
        rows = np.rint((times - start) / step).astype(np.int64)
        inside = (rows >= 0) & (rows < shape[0])
        rows, column = rows[inside], found[0]
        out[rows, column] = choose(out[rows, column], values[inside])
    return out
