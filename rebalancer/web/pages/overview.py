"""Parts of the overview: what is due, what the last cycle evaluated, why not more is evicted."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rebalancer.model.records.cycles import RefusalGroup

REASONS_AT_ONCE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A scheduled action."""

    at: float | None
    what: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What a cycle evaluated: its request may be of one pool, or of single nodes."""

    nodes: int
    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """Why pods stay on hot nodes, or why hot nodes are not evaluated: one code."""

    code: str
    sentence: str
    lifted_by: str
    """Empty where another version wrote the code."""
    pods: int
    """0 where it is the nodes that are not evaluated."""
    nodes: tuple[str, ...]
    """Those with most pods first."""
    services: tuple[str, ...]
    """Of the examples, `namespace/name`."""
    at: float
    """Start of the newest cycle that refused for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHeat:
    """CPU of the hottest node of a pool at each moment: (seconds since the epoch, share) in order."""

    pool: str
    high: float | None
    target: float | None
    past: tuple[tuple[float, float | None], ...]
    ahead: tuple[tuple[float, float | None], ...]
    """The forecast; empty on a follower."""
    evictions: tuple[tuple[float, str], ...]
    """(when, what) of the evictions from its nodes."""
    now: float
    since: float
    until: float


def why_not(groups: Sequence[RefusalGroup], service_of: Mapping[str, str]) -> tuple[WhyNot, ...]:
    """The reasons of these refusals, the most frequent first; those that nothing lifts come last.

    `service_of`: `namespace/name` of a pod -> that of its service.
    """
    by_code: dict[str, list[RefusalGroup]] = defaultdict(list)
    for each in sorted(groups, key=lambda group: (-group.count, group.node)):
        by_code[each.code].append(each)
    found = []
    for code, of in by_code.items():
        pods = [example.pod for each in of for example in each.examples]
        found.append(
            WhyNot(
                code=code,
                sentence=of[0].sentence,
                lifted_by=of[0].lifted_by,
                pods=sum(each.count for each in of if not each.of_node),
                nodes=tuple(dict.fromkeys(each.node for each in of)),
                services=tuple(dict.fromkeys(service_of[pod] for pod in pods if service_of.get(pod))),
                at=max(each.at for each in of),
            )
        )
    return tuple(sorted(found, key=_rank)[:REASONS_AT_ONCE])


def _rank(each: WhyNot) -> tuple[bool, int, str]:
    return each.lifted_by.startswith("nothing"), -(each.pods or len(each.nodes)), each.code
