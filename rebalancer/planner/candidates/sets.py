"""The smallest sets of pods whose removal leaves enough of every resource.

Fewest pods first, then the lowest price, then the least taken away: small pods find a place more easily. Pods that are
alike are interchangeable, so of equal sets one is looked at.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from rebalancer.model.notation.arrays import Floats, Rows

MOST_STEPS = 20_000
"""Partial sets that are looked at: a limit for nodes with hundreds of different pods."""

EPS = 1e-6


def fewest_covering(need: Floats, sizes: Floats) -> int:
    """At least so many pods are in every set: for each resource alone the largest ones. One more than there are where
    all of them don't do. `need` (resources,), `sizes` (pods, resources)."""
    fewest = 0
    for at in np.flatnonzero(need > EPS).tolist():
        enough = np.cumsum(np.sort(sizes[:, at])[::-1]) >= need[at] - EPS
        fewest = max(fewest, int(np.argmax(enough)) + 1 if enough.any() else len(sizes) + 1)
    return fewest


def smallest_sets(need: Floats, sizes: Floats, *, alike: Rows, prices: Floats, most: int) -> Iterator[tuple[int, ...]]:
    """Sets of at most `most` pods (rows of `sizes`), the best first, each without a pod that it doesn't need.

    `need` (resources,), `sizes` (pods, resources); `alike`, `prices` (pods,): pods with the same number are
    interchangeable but for the price. Of equal sets that of the first pods comes first. Without a need every single pod
    is a set.
    """
    lacks = need > EPS
    wanted, shares = [1.0] * int(lacks.sum()), sizes[:, lacks] / need[lacks]
    members: dict[int, list[int]] = {}
    for at in np.argsort(prices, kind="stable").tolist():
        members.setdefault(int(alike[at]), []).append(at)
    # the largest first, so that what can't be reached any more is seen early; equal ones by the order of the pods
    classes = sorted(members.values(), key=lambda each: (-round(float(shares[each[0]].sum()), 9), min(each)))
    rows, steps = [tuple(each) for each in shares.tolist()], iter(range(MOST_STEPS))
    first = max(fewest_covering(need, sizes), 1)
    for count in range(first, min(most, len(sizes)) + 1):
        found = [each for each in _of_size(count, wanted, rows, classes, steps) if _needs_all(each, rows)]
        yield from sorted(found, key=lambda each: _rank(each, prices, rows))


Row = tuple[float, ...]
"""Of each resource that lacks, as a share of what lacks."""


def _of_size(
    count: int, wanted: Sequence[float], rows: Sequence[Row], classes: Sequence[Sequence[int]], steps: Iterator[int]
) -> Iterator[tuple[int, ...]]:
    """Sets of exactly `count` pods that cover `wanted`."""
    largest: list[Row] = [tuple(0.0 for _ in wanted)]
    for each in reversed(classes):
        largest.append(tuple(map(max, largest[-1], rows[each[0]])))
    largest.reverse()
    stack: list[tuple[int, tuple[int, ...], Row]] = [(0, (), tuple(wanted))]
    while stack and next(steps, None) is not None:
        at, chosen, missing = stack.pop()
        left = count - len(chosen)
        if not left:
            yield chosen
        if not left or at == len(classes):
            continue
        members = classes[at]
        one, most = rows[members[0]], largest[at + 1]
        for taken in range(min(left, len(members)) + 1):
            lacks = tuple(each - taken * share for each, share in zip(missing, one, strict=True))
            if all(each <= (left - taken) * share + EPS for each, share in zip(lacks, most, strict=True)):
                stack.append((at + 1, (*chosen, *members[:taken]), lacks))


def _needs_all(chosen: tuple[int, ...], rows: Sequence[Row]) -> bool:
    """Whether the set without any one of its pods covers too little; a single pod is always needed."""
    if len(chosen) == 1:
        return True
    over = [sum(each) - 1.0 for each in zip(*(rows[pod] for pod in chosen), strict=True)]
    return not any(all(more - share >= -EPS for more, share in zip(over, rows[pod], strict=True)) for pod in chosen)


def _rank(chosen: tuple[int, ...], prices: Floats, rows: Sequence[Row]) -> tuple[float, float]:
    return round(sum(float(prices[pod]) for pod in chosen), 9), round(sum(sum(rows[pod]) for pod in chosen), 9)
