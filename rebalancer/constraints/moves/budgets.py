"""PodDisruptionBudgets, counted as the API server does, with this plan's evictions and those of drains to come.

Source: Kubernetes v1.36, pkg/registry/core/pod/storage/eviction.go. Budgets ignore pending and finished pods. A pod
that is not Ready takes no disruption, and may be evicted if its budget has enough healthy pods or always evicts
unhealthy ones.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.pods import FAILED, PENDING, SUCCEEDED
from rebalancer.model.cluster.snapshot import DisruptionBudget, Pod
from rebalancer.model.reason import Reason, Refusal
from rebalancer.projection.projection import Projection


class BudgetRoom:
    """Disruptions left in every budget of a snapshot."""

    def __init__(self, projection: Projection, *, apart: Callable[[Pod], bool] = lambda _pod: False) -> None:
        """`apart`: whether a pod's move is no disruption."""
        self._apart = apart
        snapshot = projection.snapshot
        self._projection, self._snapshot, self._budgets = projection, snapshot, snapshot.budgets
        self._taken = [0] * len(snapshot.budgets)
        self._matching: dict[tuple[str, int], tuple[int, ...]] = {}
        self._needed = [0] * len(snapshot.budgets)
        """Disruptions that the drains of leaving nodes will take."""
        if snapshot.budgets and (rows := np.flatnonzero(projection.displaced & snapshot.pods.ready)).size:
            # a budget selects all pods of a template in a namespace, or none
            alike = np.column_stack([snapshot.pods.namespace[rows], snapshot.pods.template[rows]])
            _, first, count = np.unique(alike, axis=0, return_index=True, return_counts=True)
            for pod, number in zip(rows[first].tolist(), count.tolist(), strict=True):
                for index in self._of(snapshot.pod(pod)):
                    self._needed[index] += number

    def _of(self, pod: Pod) -> tuple[int, ...]:
        key = (pod.namespace, int(self._snapshot.pods.template[pod.index]))
        found = self._matching.get(key)
        if found is None:
            labels, near = pod.template.labels, self._snapshot.budgets_near
            matching = [
                index
                for pair in (None, *labels.items())
                for index in near.get((pod.namespace, pair), ())
                if selector_matches(self._budgets[index].selector, labels)
            ]
            found = self._matching[key] = tuple(sorted(matching))
        return found

    def of(self, pod: Pod) -> list[DisruptionBudget]:
        """The budgets that select the pod."""
        return [self._budgets[index] for index in self._of(pod)]

    def shared(self, pod: Pod, other: Pod) -> bool:
        """Whether a budget selects both."""
        return not set(self._of(pod)).isdisjoint(self._of(other))

    def refuses(self, pod: Pod, *, alone: bool = False) -> Refusal | None:
        """Why the pod's budget forbids its eviction now; `alone`: without this plan's other evictions."""
        found = self._of(pod)
        if not found or self._apart(pod) or pod.phase in (PENDING, SUCCEEDED, FAILED):
            return None
        if len(found) > 1:
            return Refusal.of(Reason.SEVERAL_BUDGETS, ", ".join(sorted(self._budgets[index].name for index in found)))
        budget, taken = self._budgets[found[0]], 0 if alone else self._taken[found[0]]
        if not budget.up_to_date:
            return Refusal.of(Reason.BUDGET_OUTDATED, budget.name)
        if not pod.ready and _lets_unhealthy_go(budget, taken):
            return None
        needed = 0 if self._projection.displaced[pod.index] else self._needed[found[0]]
        if budget.disruptions_allowed - taken - needed <= 0:
            mine = f", {taken} of them taken by this plan" if taken else ""
            theirs = f", {needed} of them needed by leaving nodes" if needed else ""
            return Refusal.of(
                Reason.BUDGET_EXHAUSTED, f"{budget.name} allows {budget.disruptions_allowed} disruptions{mine}{theirs}"
            )
        return None

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is counted inside."""
        taken = list(self._taken)
        try:
            yield
        finally:
            self._taken = taken

    def take(self, pod: Pod) -> None:
        """Count an eviction."""
        if self._apart(pod) or pod.phase in (PENDING, SUCCEEDED, FAILED):
            return
        for index in self._of(pod):
            if pod.ready or not _lets_unhealthy_go(self._budgets[index], self._taken[index]):
                self._taken[index] += 1

    def give_back(self, pod: Pod) -> None:
        """Count an eviction as replaced: the budget has recovered."""
        if not self._apart(pod) and pod.phase not in (PENDING, SUCCEEDED, FAILED):
            for index in self._of(pod):
                self._taken[index] = max(self._taken[index] - 1, 0)

    def close(self, pod: Pod) -> None:
        """Close the pod's budget for this plan, after a refusal by the API server."""
        for index in self._of(pod):
            self._taken[index] = max(self._taken[index], self._budgets[index].disruptions_allowed)


def _lets_unhealthy_go(budget: DisruptionBudget, taken: int) -> bool:
    healthy = budget.current_healthy - taken
    return budget.evicts_unhealthy or healthy >= budget.desired_healthy > 0
