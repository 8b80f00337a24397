"""The runs of a recording's parts as one run, and the limits that all parts together went over."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise

import numpy as np

from rebalancer.constraints.moves.scopes import RULE_OF
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayedCycle, ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.limits import ScopeLimits
from rebalancer.replay.runner.split import Part

SHARED_SCOPES: Mapping[str, Callable[[Eviction], str]] = {
    "global": lambda eviction: "",
    "cluster": lambda eviction: "",
    "namespace": lambda eviction: eviction.namespace,
    "level": lambda eviction: eviction.level,
}
"""Kinds of scopes that may count evictions of several parts, with the name of the one that counts an eviction."""


def merge(runs: Sequence[ReplayRun], parts: Sequence[Part], recording: Recording) -> ReplayRun:
    """One run over the whole recording, up to where the first of `runs` stopped. They are of `parts`, in their order,
    with one policy."""
    until = min(run.until for run in runs)
    shape = len(recording.nodes), recording.steps
    share, hot = np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    for run, part in zip(runs, parts, strict=True):
        share[part.nodes], hot[part.nodes] = run.share, run.hot_minutes
    after = int(np.ceil((until - recording.start) / STEP_SECONDS))
    share[:, after:], hot[:, after:] = np.nan, 0.0
    evictions = sorted((each for run in runs for each in run.evictions if each.at <= until), key=lambda each: each.at)
    return ReplayRun(
        label=runs[0].label,
        until=until,
        share=share,
        hot_minutes=hot,
        evictions=tuple(evictions),
        cycles=_cycles(each for run in runs for each in run.cycles if each.at <= until),
        most_in_flight=max(most_in_flight(evictions), *(run.most_in_flight for run in runs)),
        waiting_pod_minutes=sum(run.waiting_pod_minutes for run in runs),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        unsure=frozenset[str]().union(*(run.unsure for run in runs)),
    )


def _cycles(cycles: Iterable[ReplayedCycle]) -> tuple[ReplayedCycle, ...]:
    """Cycles of the same time and trigger as one; it was stopped where each of them was."""

    def key(cycle: ReplayedCycle) -> tuple[float, str]:
        return cycle.at, cycle.trigger

    out = []
    for _, group in groupby(sorted(cycles, key=key), key=key):
        same = list(group)
        stopped = dict.fromkeys(each.stopped for each in same)
        out.append(
            replace(
                same[0],
                hot=sum(each.hot for each in same),
                evicted=sum(each.evicted for each in same),
                stopped="" if "" in stopped else "; ".join(stopped),
                blocked=tuple(chain.from_iterable(each.blocked for each in same)),
            )
        )
    return tuple(out)


def most_in_flight(evictions: Iterable[Eviction]) -> int:
    """Evictions in flight at once: from the answer to the Ready replacement, or until closed."""
    changes = []
    for each in evictions:
        ends = (end for end in (each.replaced.replaced_at, each.replaced.closed_at) if end is not None)
        changes += [(each.at, 1), (min(ends, default=np.inf), -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def exceeded(runs: Sequence[ReplayRun], policy: RebalancerPolicy) -> str:
    """The limit that the parts kept each by itself, but not together; empty for none. Then what they did together is
    not what the policy would have done over the whole recording."""
    if sum(bool(run.evictions) for run in runs) < 2:
        return ""
    together = Counter[tuple[float, str]]()
    for run in runs:
        together.update({(cycle.at, cycle.trigger): cycle.evicted for cycle in run.cycles})
    if max(together.values(), default=0) > policy.limits.per_cycle:
        return "limits.perCycle"
    for kind, name_of in SHARED_SCOPES.items():
        names = Counter(name for run in runs for name in {name_of(each) for each in run.evictions})
        for name in (name for name, count in names.items() if count > 1):
            counted = [each for run in runs for each in run.evictions if name_of(each) == name]
            limits = RULE_OF[kind].limits(policy, name)
            if limits is not None and (field := _over(limits, counted)):
                return f"{field} of {kind} {name}".rstrip()
    late = [sum(each.replaced.late for each in run.evictions) for run in runs]
    if sum(late) >= policy.safety.circuit_breaker.late_in_cluster > max(late):
        return "safety.circuitBreaker.lateInCluster"
    return ""


def _over(limits: ScopeLimits, evictions: Sequence[Eviction]) -> str:
    """The field of a scope's limits that these evictions go over; empty for none."""
    times = sorted(each.reserved.planned_at for each in evictions)
    for rate in limits.evictions:
        most = int(rate.max)
        if any(later - first < rate.per for first, later in zip(times, times[most:], strict=False)):
            return "evictions"
    if limits.spacing is not None and any(later - first < limits.spacing for first, later in pairwise(times)):
        return "spacing"
    return "inFlight" if limits.in_flight is not None and most_in_flight(evictions) > int(limits.in_flight) else ""
