"""The loads of a recording: what has to run, for how long, and what it uses, wherever its pod is.

A load is a recorded pod. With `joined`, pods that replaced each other after evictions by rebalancer are one load: what
happened to it then is left to the replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats, Ints
from rebalancer.model.recordings.recording import RecordedUsage, Recording

FIXED_KINDS = ("DaemonSet", "Node")
"""Owners whose pods stay on their node: those of DaemonSets, and static pods."""
START_UP_SECONDS = 30.0
"""From bound to Ready, of a service of which nothing else is recorded."""

SHORTEST_SECONDS = 30.0
"""A pod that was there for less of a step counts as there for so long: when it came and ended isn't known so well."""

MOST_OF_BEFORE = 1.5
"""In the step in which it ends a pod uses at most so much of what it uses in the step before."""

Values = NDArray[np.float32]
Wide = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadUsage:
    """Usage of one resource by load; unknown values are those before them, or 0."""

    values: Values
    """(values,) of all loads, one load after the other."""
    base: Wide
    """(loads,) index of the value of step 0, if there were one."""
    first: Wide
    """(loads,) first step with a value."""
    last: Wide
    """(loads,) last step with a value; less than `first` for none."""

    def at(self, loads: Wide, step: int) -> Floats:
        """(loads,) what these use in a step; 0 outside of their time."""
        inside = (self.first[loads] <= step) & (step <= self.last[loads])
        index = np.where(inside, self.base[loads] + step, 0)
        taken = self.values.take(index) if len(self.values) else np.zeros(len(loads), dtype=np.float32)
        return np.where(inside, taken, 0.0).astype(np.float64)

    def of(self, load: int, step: int) -> float:
        """What one load uses in a step; 0 outside of its time."""
        inside = self.first[load] <= step <= self.last[load]
        return float(self.values[self.base[load] + step]) if inside else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Columns of length `loads`. Pods are indices into `Recording.pods`."""

    pod: Ints
    """The first recorded pod of each."""
    created: Floats
    bound: Floats
    ended: Floats
    fixed: NDArray[np.bool_]
    """Whether its pod belongs to one node."""
    start_up: Floats
    """Seconds from bound to Ready, of its first pod and of replacements."""
    replacements: Mapping[int, Ints]
    """Load -> the other pods of its chain, in their order; loads of one pod are left out."""
    usage: Mapping[str, LoadUsage]
    """Resource -> usage, CPU among them."""
    elsewhere: Mapping[str, Values]
    """Resource -> (nodes, steps) usage of nodes outside of their pods."""

    def __len__(self) -> int:
        return len(self.pod)

    def of_pods(self, count: int) -> Wide:
        """(count,) load of each recorded pod."""
        out: Wide = np.zeros(count, dtype=np.int64)
        out[self.pod] = np.arange(len(self))
        for load, others in self.replacements.items():
            out[others] = load
        return out


def loads_of(recording: Recording, *, joined: bool) -> Loads:
    """The loads of a recording; see the module."""
    pods = recording.pods
    successor = np.full(len(pods), -1, dtype=np.int64)
    if joined:
        followers = np.flatnonzero(pods.replaced >= 0)
        successor[pods.replaced[followers]] = followers
    is_first = np.ones(len(pods), dtype=np.bool_)
    is_first[successor[successor >= 0]] = False
    first = np.flatnonzero(is_first)
    chains = [_chain(int(pod), successor) for pod in first] if joined else [[int(pod)] for pod in first]
    last = np.array([chain[-1] for chain in chains], dtype=np.int64)
    kinds = [each.kind for each in recording.owners]
    fixed_owner = np.array([*(kind in FIXED_KINDS for kind in kinds), False])
    demand = {name: _demand(recording, usage) for name, usage in recording.usage.items()}
    return Loads(
        pod=first.astype(np.int32),
        created=pods.created[first],
        bound=pods.bound[first],
        ended=pods.ended[last],
        fixed=fixed_owner[pods.owner[first]],
        start_up=_start_up(recording)[first],
        replacements={
            number: np.array(chain[1:], dtype=np.int32) for number, chain in enumerate(chains) if len(chain) > 1
        },
        usage={name: _joined(recording.usage[name], values, chains) for name, (values, _) in demand.items()},
        elsewhere={
            name: _elsewhere(recording, recording.usage[name], values * there)
            for name, (values, there) in demand.items()
        },
    )


def _chain(pod: int, successor: Wide) -> list[int]:
    chain = [pod]
    while (after := int(successor[chain[-1]])) >= 0 and after not in chain:
        chain.append(after)
    return chain


def _demand(recording: Recording, usage: RecordedUsage) -> tuple[Values, Values]:
    """(values,) what each pod used while it was there, and the share of each step in which it was there.

    Recorded are means over whole steps. An unknown value is the one before it of the same pod, or 0; after the last
    known one of a pod whose node is measured it is 0: the pod had gone.
    """
    values, starts = usage.pod_values, usage.pod_start
    counts = np.diff(starts)
    pods = np.flatnonzero(counts)
    known = np.isfinite(values)
    latest = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    filled = np.where(latest >= np.repeat(starts[:-1], counts), values[np.maximum(latest, 0)], 0.0)
    there = np.ones(len(values), dtype=np.float32)
    first, last = starts[pods], starts[pods + 1] - 1
    begin = recording.start + usage.pod_first[pods] * STEP_SECONDS
    end = begin + counts[pods] * STEP_SECONDS
    np.subtract.at(there, first, np.maximum(recording.pods.bound[pods] - begin, 0.0) / STEP_SECONDS)
    np.subtract.at(there, last, np.maximum(end - recording.pods.ended[pods], 0.0) / STEP_SECONDS)
    there = np.maximum(there, SHORTEST_SECONDS / STEP_SECONDS)
    gone = np.isfinite(recording.pods.ended[pods]) & ~known[last] & (latest[last] >= starts[pods])
    for pod, final in zip(pods[gone].tolist(), last[gone].tolist(), strict=True):
        after = np.arange(latest[final] + 1, final + 1)
        steps = usage.pod_first[pod] + after - starts[pod]
        measured = np.isfinite(usage.node[recording.pods.node[pod], steps])
        filled[after[measured]] = 0.0
    scaled = np.where(known, filled / there, filled)
    # of a pod that was there in the whole step before, the same and not much more: ends are not known that well
    several = counts[pods] > 1
    end, before = last[several], last[several] - 1
    most = np.where(there[before] == 1.0, np.maximum(MOST_OF_BEFORE * scaled[before], filled[end]), np.inf)
    scaled[end] = np.minimum(scaled[end], most)
    return scaled.astype(np.float32), there


def _joined(usage: RecordedUsage, values: Values, chains: list[list[int]]) -> LoadUsage:
    """Usage of chains of pods: where two of a chain have a value for a step, the later one counts."""
    counts = np.diff(usage.pod_start)
    single = np.array([len(chain) == 1 for chain in chains])
    first, last, base = (np.zeros(len(chains), dtype=np.int64) for _ in range(3))
    alone = np.array([chain[0] for chain in chains], dtype=np.int64)
    first[:] = usage.pod_first[alone]
    last[:] = first + counts[alone] - 1
    base[:] = usage.pod_start[alone] - first
    parts, size = [values], len(values)
    for number in np.flatnonzero(~single).tolist():
        members = [pod for pod in chains[number] if counts[pod]]
        if not members:
            continue
        begin = min(int(usage.pod_first[pod]) for pod in members)
        end = max(int(usage.pod_first[pod] + counts[pod]) for pod in members)
        course = np.zeros(end - begin, dtype=np.float32)
        for before, pod in zip([None, *members], members, strict=False):
            at = int(usage.pod_first[pod]) - begin
            own = values[usage.pod_start[pod] : usage.pod_start[pod + 1]]
            course[at : at + len(own)] = own
            if before is not None:
                until = int(usage.pod_first[before] + counts[before]) - begin
                if at < until:  # the step in which one left and the other came
                    course[at] = max(course[at], values[usage.pod_start[before] + at + begin - usage.pod_first[before]])
                else:
                    course[until:at] = course[until - 1]
        first[number], last[number], base[number] = begin, end - 1, size - begin
        parts.append(course)
        size += len(course)
    return LoadUsage(values=np.concatenate(parts), base=base, first=first, last=last)


def _elsewhere(recording: Recording, usage: RecordedUsage, values: Values) -> Values:
    """What the nodes used outside of their pods; an unknown value is the one before it. `values`: means over whole
    steps."""
    counts = np.diff(usage.pod_start)
    steps = np.arange(len(values)) - np.repeat(usage.pod_start[:-1] - usage.pod_first, counts)
    nodes = np.repeat(recording.pods.node.astype(np.int64), counts)
    inside = (nodes >= 0) & (steps >= 0) & (steps < recording.steps)
    flat = np.bincount(
        nodes[inside] * recording.steps + steps[inside],
        weights=values[inside],
        minlength=len(recording.nodes) * recording.steps,
    ).reshape(len(recording.nodes), recording.steps)
    rest = np.maximum(usage.node - flat, 0.0)
    known = np.isfinite(rest)
    latest = np.maximum.accumulate(np.where(known, np.arange(recording.steps), 0), axis=1)
    filled = np.take_along_axis(rest, latest, axis=1)
    return np.where(np.isfinite(filled), filled, 0.0).astype(np.float32)


def _start_up(recording: Recording) -> Floats:
    """(pods,) seconds from bound to Ready: of the pod, of its owner's other pods, or as usual."""
    pods = recording.pods
    with np.errstate(invalid="ignore"):
        own = pods.ready - pods.bound
    known = np.isfinite(own) & (own >= 0) & (pods.bound > recording.start - STEP_SECONDS)
    found = np.full(len(pods), START_UP_SECONDS)
    tops = top_owners(recording.owners)[pods.owner]
    order = np.argsort(tops[known], kind="stable")
    rows = np.flatnonzero(known)[order]
    if len(rows):
        names, begins = np.unique(tops[rows], return_index=True)
        usual = {
            int(name): float(np.median(part)) for name, part in zip(names, np.split(own[rows], begins[1:]), strict=True)
        }
        found = np.array([usual.get(int(top), START_UP_SECONDS) if top >= 0 else START_UP_SECONDS for top in tops])
    found[known] = own[known]
    return found


def top_owners(owners: Sequence[Owner]) -> Wide:
    """(owners + 1,) top owner of each owner; the last element is -1, for pods without any."""
    tops = list(range(len(owners)))
    for at, _ in enumerate(owners):
        seen, top = {at}, at
        while (parent := owners[top].parent) >= 0 and parent not in seen:
            seen.add(parent)
            top = parent
        tops[at] = top
    return np.array([*tops, -1], dtype=np.int64)
