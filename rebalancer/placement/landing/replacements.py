"""Which pod replaces an evicted one, and what the scheduler sees of the evicted one by then."""

from rebalancer.model.cluster.replacement import AT_ONCE, newest_siblings
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.placement.cluster.kinds import Kind, PodKinds
from rebalancer.placement.landing.pending import MADE_AFTERWARDS
from rebalancer.placement.plugins.volumes import claims_of
from rebalancer.placement.scheduler.engine import Departure


class Replacements:
    """The replacements of a snapshot's pods."""

    def __init__(self, snapshot: ClusterSnapshot, kinds: PodKinds) -> None:
        self._exclusive, self._kinds = snapshot.exclusive_claims, kinds
        self._like = newest_siblings(snapshot)

    def kind_of(self, pod: Pod) -> Kind:
        """The kind of the replacement: where an owner's pods are all alike, that of the newest of them."""
        alike = pod.node >= 0 and pod.owner is not None and pod.owner.kind in AT_ONCE
        return self._kinds.of(int(self._like[pod.index]) if alike else pod.index)

    def departures(self, pod: Pod) -> list[Departure | None]:
        """A ReplicaSet creates the replacement at once, while the old pod terminates; a StatefulSet only afterwards.
        A pod with an exclusive claim is placed afterwards too. For other owners both are assumed. None: a pending pod,
        or one that is terminating already, which spreading doesn't count."""
        if pod.node < 0:
            return [None]
        kind = pod.owner.kind if pod.owner is not None else ""
        after = Departure(pod.node)
        while_it_goes = None if pod.terminating else Departure(pod.node, terminating=True)
        if kind in MADE_AFTERWARDS or self._uses_exclusive_claim(pod):
            return [after]
        return [while_it_goes] if kind in AT_ONCE else [after, while_it_goes]

    def _uses_exclusive_claim(self, pod: Pod) -> bool:
        return bool(self._exclusive) and any(
            (pod.namespace, claim) in self._exclusive for claim in claims_of(pod.template)
        )
