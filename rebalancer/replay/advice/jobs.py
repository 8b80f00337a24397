"""Advice on Jobs: whose pods keep nodes hot, and what it would save if they could be evicted."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from rebalancer.model.cluster.annotations import EVICT_JOB
from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.document import INLINE, Amount, Count
from rebalancer.model.reason import Reason
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import HOUR_MINUTES, Replay
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.advice.changes import EvictableJobs, services_of
from rebalancer.replay.advice.results import ALL, AS_IS, Result, Run, alone, label_of, result_of, variants_of
from rebalancer.replay.comparison.lines import BlockedLine, GapLine, Replayed
from rebalancer.replay.comparison.summary import attributed, blocked_of, gaps_of, judgements, replayed_of
from rebalancer.replay.comparison.variants import Variant

JOB_SPEC: Mapping[str, Any] = {
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
    "template": {"metadata": {"annotations": {EVICT_JOB: "true"}}, "spec": {"restartPolicy": "Never"}},
}
"""Of a Job whose pods may be evicted. Kubernetes allows a podFailurePolicy only with this restartPolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A CronJob, or a Job without one, whose pods keep nodes hot."""

    kind: str
    namespace: str
    name: str
    held_node_hours: Amount
    """Time for which nodes were hot while Job pods kept most of their load there, the largest of them one of its."""
    nodes: Count
    evictable: Result | None
    """If its pods could be evicted, and no others besides; null where that was not replayed."""
    patch: Mapping[str, Any]
    """A merge patch of the CronJob, or of the manifest of a Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdvice:
    """Jobs whose pods keep nodes hot, most hot node-hours first."""

    replayed: Annotated[Replayed, INLINE]
    unchanged: Result
    """With all Jobs as they are."""
    all_evictable: Result | None
    """If the pods of all of `jobs` could be evicted; null without any."""
    blocked: tuple[BlockedLine, ...]
    """What keeps nodes hot then; most hot node-hours first."""
    jobs: tuple[JobLine, ...]
    gaps: tuple[GapLine, ...]


def advise_jobs(recording: Recording, policy: RebalancerPolicy, *, run: Run, most: int) -> JobAdvice | None:
    """`run` replays `recording`; at most `most` Jobs are replayed alone. None where it was interrupted."""
    first = run([Variant(label=AS_IS, policy=policy, part="")])
    if first is None or not first.runs:
        return None
    held, results, blocked = _held(recording, first), dict[str, Result](), list[BlockedLine]()
    services = list(held)
    if services:
        changed = run(variants_of(policy, services, lambda some: EvictableJobs(frozenset(some)), most=most))
        if changed is None or not changed.runs:
            return None
        results = {each.label: result_of(each) for each in changed.runs}
        blocked = blocked_of(changed, changed.runs[0])
    return JobAdvice(
        replayed=replayed_of(first),
        unchanged=result_of(first.runs[0]),
        all_evictable=results.get(ALL),
        blocked=tuple(blocked),
        jobs=tuple(
            JobLine(
                kind=service.kind,
                namespace=service.namespace,
                name=service.name,
                held_node_hours=minutes / HOUR_MINUTES,
                nodes=nodes,
                evictable=alone(results, service, services),
                patch={"spec": {"jobTemplate": {"spec": JOB_SPEC}} if service.kind == "CronJob" else JOB_SPEC},
            )
            for service, (minutes, nodes) in held.items()
        ),
        gaps=gaps_of(first),
    )


def _held(recording: Recording, replay: Replay) -> dict[Service, tuple[float, int]]:
    """Hot node-minutes that the pods of each Job hold in the only run, and the number of nodes; most first."""
    pods, spaces, services = recording.pods, recording.namespaces, dict[str, Service]()
    of_pod = dict[str, str]()
    for service, rows in services_of(recording).items():
        services[label_of(service)] = service
        for row in rows.tolist():
            if recording.owners[int(pods.owner[row])].kind == "Job":
                of_pod[f"{spaces[int(pods.namespace[row])]}/{pods.names[row]}"] = label_of(service)
    run, keys = replay.runs[0], defaultdict[int, list[tuple[float, str]]](list)
    for place, found in judgements(replay, run).items():
        for each in found:
            keys[place].append((each.at, of_pod.get(each.pod, "") if each.code == Reason.JOB_POD.value else ""))
    held = {
        services[label]: (float(sum(each.sum() for each in of_nodes.values())), len(of_nodes))
        for label, of_nodes in attributed(replay, run, keys).items()
        if label
    }
    return dict(sorted(held.items(), key=lambda each: (-each[1][0], str(each[0]))))
