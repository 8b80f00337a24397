"""CPU that pods use on another node, with the source of each figure. Every landing is checked with it.

A measurement is not what the same pod uses elsewhere:

- A pod that has just arrived, or that replaces an evicted one and is not Ready, shows little: what its evicted
  predecessor used, or its siblings' usual CPU, if that is more.
- On a saturated node a pod shows what it got: what its siblings use on other nodes, if that is more.
- While a service has an eviction in flight its siblings carry the missing share. This surplus passes.
- The same work is more CPU on a slower machine: figures of several machines are compared in millicores of the
  reference machine (`forecast.generation`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.compose import FULL_SHARE
from rebalancer.forecast.series.membership import machine_factors
from rebalancer.forecast.series.predecessors import predecessors
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.usage import Usage
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.policy.schema.forecast import Generation

FULL_PRESSURE = 0.5
"""Share of time with waiting tasks (PSI) from which a node is saturated. CFS throttling doesn't count: a pod's
own limit holds on every node."""

CLOCK_SLACK_SECONDS = 5.0
"""Greatest difference between the API server's clock and the ledger's."""


class CpuSource(StrEnum):
    """Source of the figure of one pod."""

    UNKNOWN = "unknown"
    MEASURED = "measured"
    SIBLINGS = "siblings"
    """The mean of the service's other pods: the pod is new, or its node is saturated."""
    PREDECESSOR = "predecessor"
    """What the evicted pod used that it replaces: the pod is new."""
    REQUEST = "request"
    """As before, without siblings to compare with."""


SOURCES = tuple(CpuSource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCpu:
    """CPU of a snapshot's pods. Arrays are (pods,); NaN where unknown."""

    here: Floats
    """Millicores on its node; a pod that has just arrived has its predecessor's, or its service's usual CPU."""
    surplus: Floats
    """The part of `here` that passes: the share of replacements that are not Ready yet. 0 where there is none."""
    elsewhere: Floats
    """Millicores of the reference machine that it uses on another node; with its surplus."""
    source: NDArray[np.int8]
    """Of `elsewhere`; index into `SOURCES`."""
    arrived: Bools
    """Whether `here` is not a measurement."""
    speed: Floats
    """(nodes,) speed of one core relative to the reference machine."""

    def on_reference(self, millicores: Floats, snapshot: ClusterSnapshot) -> Floats:
        """A column of pods as millicores of the reference machine."""
        converted: Floats = millicores * _of_pods(self.speed, snapshot)
        return converted


@dataclass(frozen=True, slots=True)
class MissingReplica:
    """A replica whose load its siblings carry, or carried within the rate window."""

    eviction: Eviction
    until: float
    """When its replacement was Ready, seconds since the epoch; now while it isn't."""


def missing_replicas(
    in_flight: Iterable[Eviction], recent: Iterable[Eviction], *, now: float, window_seconds: float
) -> tuple[MissingReplica, ...]:
    """`in_flight`: evictions whose replacement is not Ready, or was found Ready just now. Of the `recent` ones those
    count whose replacement was Ready within the rate window."""
    found = {
        each.uid: MissingReplica(each, each.replaced.replaced_at)
        for each in recent
        if each.replaced.replaced_at is not None
    }
    found |= {each.uid: MissingReplica(each, now) for each in in_flight}
    # a finished pod has no target node: it carried no load
    return tuple(each for each in found.values() if each.eviction.target_nodes and each.until > now - window_seconds)


def pod_cpu(
    snapshot: ClusterSnapshot,
    usage: Usage,
    *,
    now: float,
    missing: Sequence[MissingReplica] = (),
    generation: Generation | None = None,
) -> PodCpu:
    """The figures of all pods at `now`, in seconds since the epoch."""
    pods = snapshot.pods
    speed = machine_factors(snapshot.nodes.labels, generation)
    each_speed = _of_pods(speed, snapshot)
    measured = usage.pod_cpu_millicores
    staying = snapshot.active & ~pods.terminating
    # a bound pod without a start time has just arrived
    arrived = staying & ~(pods.started <= now - usage.window_seconds)
    groups = _by_service(snapshot, missing)
    for top, evictions in groups.items():
        members = snapshot.pods_of(top)
        # what was created since shows little for a rate window after it is Ready
        since = min(each.eviction.at for each in evictions) - CLOCK_SLACK_SECONDS
        arrived[members] |= staying[members] & (~pods.ready[members] | (pods.created[members] >= since))
    settled = staying & ~arrived & np.isfinite(measured)
    surplus = np.zeros(len(pods))
    for top, evictions in groups.items():
        members = snapshot.pods_of(top)
        members = members[settled[members] & pods.ready[members]]
        loads = [_on_reference(each.eviction, snapshot, speed) for each in evictions]
        window = usage.window_seconds
        shares = [min(max(each.until - max(each.eviction.at, now - window), 0.0) / window, 1.0) for each in evictions]
        found = _surplus(measured[members] * each_speed[members], np.array(loads), np.array(shares))
        surplus[members] = found / each_speed[members]
    usual = (measured - surplus) * each_speed
    full = np.append(_saturated(snapshot, usage), False)[pods.node]
    of_rested, of_all = _means(snapshot, usual, settled & ~full), _means(snapshot, usual, settled)
    requested = pods.cpu_request_millicores
    of_siblings = np.where(np.isfinite(of_rested), of_rested, of_all)
    before = _of_predecessors(snapshot, missing, speed)
    known = np.fmax(of_siblings, before)
    expected = np.where(np.isfinite(known), known / each_speed, requested)
    # a pod that already uses more than usual counts with that
    here = np.where(arrived, np.fmax(expected, measured), measured)
    elsewhere, source = here * each_speed, np.where(np.isfinite(here), SOURCES.index(CpuSource.MEASURED), 0)
    new = arrived & ~(measured >= expected)
    _replace(source, new, np.isfinite(known))
    source[new & np.isfinite(before) & ~(of_siblings >= before)] = SOURCES.index(CpuSource.PREDECESSOR)
    wanted = np.where(np.isfinite(of_rested), of_rested, requested * each_speed)
    more = staying & full & (wanted > elsewhere)
    _replace(source, more, np.isfinite(of_rested))
    return PodCpu(
        here=here,
        surplus=surplus,
        elsewhere=np.where(more, wanted, elsewhere),
        source=source.astype(np.int8),
        arrived=arrived,
        speed=speed,
    )


def _of_pods(of_nodes: Floats, snapshot: ClusterSnapshot) -> Floats:
    """(pods,) the figure of each pod's node; 1 for a pod on no node."""
    spread: Floats = np.append(of_nodes, 1.0)[snapshot.pods.node]
    return spread


def _on_reference(eviction: Eviction, snapshot: ClusterSnapshot, speed: Floats) -> float:
    """What the evicted pod used, in millicores of the reference machine; NaN where unknown. A node that is gone counts
    as if it were a reference machine."""
    node = snapshot.node_index.get(eviction.node)
    return eviction.cpu_millicores * (1.0 if node is None else float(speed[node]))


def _of_predecessors(snapshot: ClusterSnapshot, missing: Sequence[MissingReplica], speed: Floats) -> Floats:
    """(pods,) what each pod's evicted predecessor used, in millicores of the reference machine; NaN where unknown."""
    out = np.full(len(snapshot.pods), np.nan)
    for pod, eviction in predecessors(snapshot, [each.eviction for each in missing]).items():
        out[pod] = _on_reference(eviction, snapshot, speed)
    return out


def _saturated(snapshot: ClusterSnapshot, usage: Usage) -> Bools:
    """(nodes,) nodes whose pods show what they got."""
    full: Bools = usage.node_cpu_millicores >= FULL_SHARE * snapshot.nodes.cpu_capacity_millicores
    if usage.contention is not None:
        full |= usage.contention.node_pressure >= FULL_PRESSURE
    return full


def _by_service(snapshot: ClusterSnapshot, missing: Sequence[MissingReplica]) -> dict[int, list[MissingReplica]]:
    """Index of a top owner -> its missing replicas."""
    if not missing:
        return {}
    tops = {
        (owner.kind, owner.namespace, owner.name): index
        for index, owner in enumerate(snapshot.owners)
        if owner.parent < 0
    }
    out: dict[int, list[MissingReplica]] = {}
    for each in missing:
        service = each.eviction.service
        top = tops.get((service.kind, service.namespace, service.name))
        if top is not None:
            out.setdefault(top, []).append(each)
    return out


def _surplus(serving: Floats, evicted: Floats, within: Floats) -> Floats:
    """(serving,) surplus of the serving pods of one service, all in millicores of the reference machine.

    `serving` is their CPU, `evicted` that of the missing ones (NaN = not known), `within` the share of the rate window
    without these. The surplus is what a pod uses more than the evicted ones did, and no more than an even share of
    their load: alike pods that share no load have none.
    """
    if not len(serving):
        return serving
    # without a record: as if each pod had carried an even share of all
    even = float(serving.sum()) / (len(serving) + len(evicted))
    loads = np.where(np.isfinite(evicted), evicted, even)
    surplus: Floats = np.clip(serving - float(loads.mean()), 0.0, float(loads @ within) / len(serving))
    return surplus


def _means(snapshot: ClusterSnapshot, values: Floats, chosen: Bools) -> Floats:
    """(pods,) mean of the chosen pods of each pod's service; NaN without any."""
    pods, count = snapshot.pods, len(snapshot.owners)
    if not count:
        return np.full(len(pods), np.nan)
    chosen = chosen & (pods.owner >= 0)
    top = snapshot.top_owner[pods.owner[chosen]]
    sums = np.bincount(top, weights=values[chosen], minlength=count)
    counts = np.bincount(top, minlength=count)
    mean = np.divide(sums, counts, out=np.full(count, np.nan), where=counts > 0)
    # pods without an owner come last
    return np.append(mean[snapshot.top_owner], np.nan)[pods.owner]


def _replace(source: NDArray[np.int64], where: Bools, known: Bools) -> None:
    """Note that siblings are the source, or where none is known the request."""
    source[where & known] = SOURCES.index(CpuSource.SIBLINGS)
    source[where & ~known] = SOURCES.index(CpuSource.REQUEST)
