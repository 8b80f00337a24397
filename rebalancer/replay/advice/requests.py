"""Advice on CPU requests: which services use far more than they request, and what it would save if they requested it.

kube-scheduler places pods by requests. Pods that use more lie together on nodes that are full by usage alone.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.document import INLINE, Amount, Count
from rebalancer.model.notation.figures import millicores
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import HOUR_MINUTES, Grid32
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import fixed_high
from rebalancer.replay.advice.changes import CpuRequests, services_of
from rebalancer.replay.advice.results import ALL, AS_IS, Result, Run, alone, result_of, variants_of
from rebalancer.replay.comparison.lines import GapLine, Replayed
from rebalancer.replay.comparison.summary import gaps_of, replayed_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.replay.cycles.run import high_millicores, measured
from rebalancer.strategies.interface.selection import BOUND_KINDS

PERCENTILE = 95.0
"""Of the CPU of a service's pods, means over five minutes, that is proposed as their request."""
FAR_MORE = 1.5
"""Of what its pods request, from which on a service has a proposal."""
ROUND_MILLICORES = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A request that a service lacks."""

    pods: int
    """Pods of the recording."""
    request: float
    """Millicores of a pod, the median of them."""
    proposed: float
    """Millicores of each pod."""
    excess: float
    """Core-hours that its pods used over their requests on hot nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """A service whose pods use far more CPU than they request."""

    kind: str
    namespace: str
    name: str
    pods: Count
    """Pods of the recording."""
    request_millicores: Amount
    """Of a pod, the median of them."""
    proposed_millicores: Amount
    """Of each pod."""
    excess_core_hours: Amount
    """Used over the requests on hot nodes."""
    proposed: Result | None
    """If its pods, and no others besides, had the proposed request; null where that was not replayed."""
    patch: Mapping[str, Any]
    """A merge patch, for kinds whose pod template is `spec.template`, or that of a CronJob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAdvice:
    """Services whose requests make nodes hot: those that were replayed first, fewest hot node-hours left first."""

    replayed: Annotated[Replayed, INLINE]
    unchanged: Result
    """With all requests as they are."""
    all_proposed: Result | None
    """If all of `services` had the proposed requests; null without any."""
    services: tuple[RequestLine, ...]
    gaps: tuple[GapLine, ...]


def advise_requests(recording: Recording, policy: RebalancerPolicy, *, run: Run, most: int) -> RequestAdvice | None:
    """`run` replays `recording`; at most `most` services are replayed alone. None where it was interrupted."""
    found = proposals(recording, policy)
    services = list(found)
    cpu = {service: each.proposed for service, each in found.items()}
    changed = variants_of(policy, services, lambda some: CpuRequests({each: cpu[each] for each in some}), most=most)
    made = run([Variant(label=AS_IS, policy=policy, part=""), *changed])
    if made is None or not made.runs:
        return None
    results = {each.label: result_of(each) for each in made.runs}
    lines = [_line(service, each, alone(results, service, services)) for service, each in found.items()]
    lines.sort(key=lambda each: math.inf if each.proposed is None else each.proposed.hot_node_hours)
    return RequestAdvice(
        replayed=replayed_of(made),
        unchanged=results[AS_IS],
        all_proposed=results.get(ALL),
        services=tuple(lines),
        gaps=gaps_of(made),
    )


def proposals(recording: Recording, policy: RebalancerPolicy) -> dict[Service, Proposal]:
    """Of the services that use far more than they request and did so on hot nodes; most excess first."""
    high = {pool.name: most for pool in policy.pools if (most := fixed_high(pool, CPU)) is not None}
    _, hot = measured(recording, high_millicores(recording, policy, high))
    found = [each for each in _proposals(recording, hot) if each[1].excess > 0]
    return dict(sorted(found, key=lambda each: (-each[1].excess, str(each[0]))))


def _proposals(recording: Recording, hot: Grid32) -> Iterator[tuple[Service, Proposal]]:
    pods, usage, templates = recording.pods, recording.usage[CPU], recording.pod_templates
    count = np.diff(usage.pod_start)
    for service, members in services_of(recording).items():
        rows = members[(pods.node[members] >= 0) & (count[members] > 0)]
        if service.kind in BOUND_KINDS or not len(rows):
            continue
        requests = np.array([templates[index].cpu_request_millicores for index in pods.template[rows].tolist()])
        pod = np.repeat(np.arange(len(rows)), count[rows])
        within = np.arange(len(pod)) - np.repeat(np.cumsum(count[rows]) - count[rows], count[rows])
        used: Floats = usage.pod_values[usage.pod_start[rows][pod] + within].astype(np.float64)
        known = np.isfinite(used)
        if not known.any():
            continue
        request = float(np.median(requests))
        proposed = float(np.ceil(np.percentile(used[known], PERCENTILE) / ROUND_MILLICORES) * ROUND_MILLICORES)
        if proposed < FAR_MORE * max(request, ROUND_MILLICORES):
            continue
        over = np.nan_to_num(np.maximum(used - requests[pod], 0.0)) / 1000.0
        minutes = np.nan_to_num(hot[pods.node[rows][pod], usage.pod_first[rows][pod] + within])
        excess = float((over * minutes).sum()) / HOUR_MINUTES
        yield service, Proposal(pods=len(rows), request=request, proposed=proposed, excess=excess)


def _line(service: Service, of: Proposal, result: Result | None) -> RequestLine:
    spec: dict[str, Any] = {"template": {"spec": {"resources": {"requests": {"cpu": millicores(of.proposed)}}}}}
    return RequestLine(
        kind=service.kind,
        namespace=service.namespace,
        name=service.name,
        pods=of.pods,
        request_millicores=of.request,
        proposed_millicores=of.proposed,
        excess_core_hours=of.excess,
        proposed=result,
        patch={"spec": {"jobTemplate": {"spec": spec}} if service.kind == "CronJob" else spec},
    )
