"""What replays of changed recordings give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.document import Amount, Count
from rebalancer.model.recordings.replay import HOUR_MINUTES, Replay, ReplayRun
from rebalancer.policy import RebalancerPolicy
from rebalancer.replay.comparison.variants import Change, Variant

Run = Callable[[Sequence[Variant]], Replay | None]
"""Replays a recording under each variant; None where it was interrupted before all began."""

AS_IS, ALL = "as they are", "all changed"
"""Labels of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run with the policy."""

    hot_node_hours: Amount
    evictions: Count
    waiting_pod_hours: Amount
    """Time in which pods found no node; they use nothing meanwhile, so nodes look cooler than they would be."""


def result_of(run: ReplayRun) -> Result:
    """The figures of a run."""
    return Result(
        hot_node_hours=run.hot_node_minutes / HOUR_MINUTES,
        evictions=len(run.evictions),
        waiting_pod_hours=run.waiting_pod_minutes / HOUR_MINUTES,
    )


def label_of(service: Service) -> str:
    """Of the run in which this service alone is changed."""
    return f"{service.kind} {service}"


def variants_of(
    policy: RebalancerPolicy, services: Sequence[Service], change: Callable[[Sequence[Service]], Change], *, most: int
) -> list[Variant]:
    """The recording with `change` of all services, and of each of the first `most` alone."""
    chosen: Mapping[str, Sequence[Service]] = {
        ALL: services,
        **{label_of(each): (each,) for each in services[: most if len(services) > 1 else 0]},
    }
    return [Variant(label=label, policy=policy, part="", change=change(some)) for label, some in chosen.items() if some]


def alone(results: Mapping[str, Result], service: Service, services: Sequence[Service]) -> Result | None:
    """The run in which this service alone is changed; None where it was not replayed."""
    return results.get(ALL if len(services) == 1 else label_of(service))
