"""Times at which services had no Ready pod, and which of them are ours.

Readiness comes from the lab's history of placements. A pod serves from its first Ready until its deletion begins or its
node is gone; no pod of the day turns unready otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf

from rebalancer.lab.loads.history import Stay

Name = tuple[str, str]
"""(namespace, name) of a service."""
Span = tuple[float, float]
"""From, until: seconds since the epoch."""

LEAST_REPLICAS = 2
"""A service of one replica has none Ready in every move."""
RECENT_SECONDS = 600.0
"""For how long an eviction counts although its replacement is Ready: what it leaves thin is still thin."""


def spans_without_ready(
    stays: Sequence[Stay], desired: Sequence[tuple[float, int]], *, start: float, end: float
) -> tuple[Span, ...]:
    """When a service that wanted two pods or more had none Ready. `desired`: (from when, replicas), in order."""
    wanted = [
        (since, until)
        for (since, count), (until, _) in pairwise([*desired, (inf, 0)])
        if count >= LEAST_REPLICAS and since < until
    ]
    within = intersection(wanted, [(start, end)])
    return without(within, [(each.ready, min(each.leaving, each.end)) for each in stays if each.ready < inf])


def exposed_spans(evicted: Iterable[float], stays: Sequence[Stay], *, end: float) -> tuple[Span, ...]:
    """When an eviction of ours was in flight, that is until a pod that began after it was Ready, or recent."""
    found = []
    for at in evicted:
        landed = min((each.ready for each in stays if each.start > at), default=inf)
        found.append((at, min(max(landed, at + RECENT_SECONDS), end)))
    return union(found)


def seconds_by_us(
    unserved: Mapping[Name, Sequence[Span]],
    exposed: Mapping[Name, Sequence[Span]],
    alone: Mapping[Name, Sequence[Span]],
) -> dict[Name, float]:
    """Seconds of each service that had no Ready pod after an eviction of ours, and had one at that time in the day
    without us (`alone`)."""
    found = {
        name: sum(until - since for since, until in without(intersection(spans, exposed[name]), alone.get(name, ())))
        for name, spans in unserved.items()
        if name in exposed
    }
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same times in order, without overlaps."""
    found: list[Span] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        elif since < until:
            found.append((since, until))
    return tuple(found)


def intersection(one: Iterable[Span], other: Iterable[Span]) -> tuple[Span, ...]:
    """Times that are in both."""
    others = union(other)
    return union((max(a, c), min(b, d)) for a, b in union(one) for c, d in others if max(a, c) < min(b, d))


def without(spans: Iterable[Span], taken: Iterable[Span]) -> tuple[Span, ...]:
    """Times of `spans` that are not in `taken`."""
    edges = [-inf, *(edge for span in union(taken) for edge in span), inf]
    return intersection(spans, zip(edges[::2], edges[1::2], strict=True))
