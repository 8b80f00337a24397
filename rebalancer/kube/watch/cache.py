"""The cluster kept in memory by watches, so that a cycle starts at once."""

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.snapshot.autoscalers import Autoscaler, autoscaler_of
from rebalancer.kube.snapshot.lists import garbage_collector_paused
from rebalancer.kube.snapshot.owners import (
    KEPT_WITHOUT_PODS,
    Owners,
    Workload,
    standalone_replicasets,
    with_shared_strings,
)
from rebalancer.kube.snapshot.quarantine import whole
from rebalancer.kube.snapshot.quotas import Quota, quota_of
from rebalancer.kube.snapshot.records import Budget, Namespace, Node, OwnerReference, Pod, PriorityClass
from rebalancer.kube.snapshot.services import Selector, ServiceObject, selector_of
from rebalancer.kube.snapshot.snapshot import (
    AUTOSCALERS,
    BUDGETS,
    CSI_DRIVERS,
    CSI_NODES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    REPLICASETS,
    SERVICES,
    VOLUMES,
    WORKLOADS,
    KubeCluster,
    PodStateRecord,
    budget_of,
    itself,
    named_kinds,
    put_together,
    unread_workloads,
)
from rebalancer.kube.snapshot.version import FollowedRelease
from rebalancer.kube.snapshot.volumes import BoundClaims, CsiDriverObject, CsiNode, PersistentVolume
from rebalancer.kube.watch.rows import PodRows, PodsTaken
from rebalancer.kube.watch.stores import NodeRecords, Records
from rebalancer.kube.watch.watch import STOP_SECONDS, Reflector, WatchStats, never
from rebalancer.model.cluster.autoscaling import HorizontalAutoscaler
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.cluster.quota import ResourceQuota
from rebalancer.model.cluster.snapshot import ClusterSnapshot, DisruptionBudget
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError, UnsafeDataError
from rebalancer.model.parts import FailedParts

MAX_AGE_SECONDS = 120.0

SYNC = "synchronization of the cache"
"""Name of a part that may fail."""

Workloads = Records[Workload, tuple[str, Workload]]
"""(kind, workload) by uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnersTaken:
    """The owners of a snapshot, and what they were made of."""

    references: Mapping[int, tuple[str, OwnerReference]]
    """Number of an owner that has pods -> (namespace, reference)."""
    named: frozenset[str]
    """The kinds that are needed."""
    owners: Owners
    numbers: Mapping[int, int]
    """Number of an owner -> index of its record."""


class WatchedCluster:
    """Implements `model.decisions.ports.ClusterReader` from memory. Call `start`, and `stop` at the end.

    Some kinds are watched only when needed: PersistentVolumes, CSINodes and CSIDrivers, when a pod uses a claim, and
    whole ReplicaSets in place of their metadata, when one without a controller owns pods. Until they are read there is
    no snapshot.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        clock: Clock,
        max_age_seconds: float = MAX_AGE_SECONDS,
        parts: FailedParts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """A snapshot needs every kind to have been current `max_age_seconds` ago or later. `pause`: see `Reflector`."""
        self._client = client
        self._clock = clock
        self._live = KubeCluster(client=client, clock=clock)
        self._max_age = max_age_seconds
        self._parts = parts or FailedParts(now=time.time, monotonic=monotonic)
        self._monotonic = monotonic
        self._pause = pause
        self._chance = chance
        self._lock = threading.Lock()
        self._started = self._stopped = False
        self._whole_replicasets = False
        release = FollowedRelease(client)
        self._nodes = self._reflector(NODES, Node, NodeRecords)
        self._pods = self._reflector(
            PODS,
            Pod,
            lambda: PodRows(release.minor()),
            # what a pod requests depends on it
            is_outdated=lambda pods: pods.minor != release.minor(),
        )
        self._spaces = self._reflector(
            NAMESPACES, Namespace, partial(Records[Namespace, Namespace], itself, "Namespace")
        )
        self._classes = self._reflector(
            PRIORITY_CLASSES, PriorityClass, partial(Records[PriorityClass, PriorityClass], whole, "PriorityClass")
        )
        self._budgets = self._reflector(
            BUDGETS, Budget, partial(Records[Budget, DisruptionBudget], budget_of, "PodDisruptionBudget")
        )
        self._quotas = self._reflector(QUOTAS, Quota, partial(Records[Quota, ResourceQuota], quota_of, "ResourceQuota"))
        self._autoscalers = self._reflector(
            AUTOSCALERS,
            Autoscaler,
            partial(Records[Autoscaler, HorizontalAutoscaler], autoscaler_of, "HorizontalPodAutoscaler"),
        )
        self._services = self._reflector(
            SERVICES, ServiceObject, partial(Records[ServiceObject, Selector], selector_of, "Service")
        )
        self._workloads: dict[str, Reflector[Workload, Workloads]] = {
            kind: self._reflector(each, Workload, _keeping(kind), metadata_only=kind == "ReplicaSet")
            for kind, each in WORKLOADS.items()
        }
        self._volumes: Reflector[PersistentVolume, Records[Any, Any]] | None = None
        self._csi_nodes: Reflector[CsiNode, Records[Any, Any]] | None = None
        self._csi_drivers: Reflector[CsiDriverObject, Records[Any, Any]] | None = None
        self._claims_of: tuple[Any, int, BoundClaims] | None = None
        self._owners_taken: _OwnersTaken | None = None
        self._obstacles: tuple[Obstacle, ...] = ()

    def start(self) -> None:
        """Start to list and watch, in one thread for each kind."""
        with self._lock:
            self._started = True
            for each in self._reflectors():
                each.start()

    def stop(self) -> None:
        """Stop all watches; takes at most a second, also in the middle of a read."""
        with self._lock:
            self._stopped = True
            running = self._reflectors()
        for each in running:
            each.stop()
        end = time.monotonic() + STOP_SECONDS
        for each in running:
            each.join(max(0.0, end - time.monotonic()))

    def synced(self) -> bool:
        """Whether all that a snapshot needs has been read once."""
        if not self._all_read():
            return False
        pods: PodRows = self._pods.known
        try:
            self._follow_what_is_needed(
                uses_claims=pods.uses_claims(), references=[reference for _, reference in pods.owners()]
            )
        except Exception as error:  # noqa: BLE001 - noted by its part
            self._parts.failed(SYNC, error)
            return False
        self._parts.worked(SYNC)
        return self._all_read()

    def problem(self) -> str:
        """Why there is no snapshot now; empty when there is one."""
        try:
            self._check()
        except UnsafeDataError as error:
            return str(error)
        return ""

    def ages(self) -> Mapping[str, float]:
        """Plural of each kind -> seconds since its store was last known to be current; infinite at first."""
        now = self._monotonic()
        return {each.name: each.age(now) for each in self._needed()}

    def stats(self) -> Mapping[str, WatchStats]:
        """Plural of each kind -> statistics of its watch; the counters never reset."""
        return {each.name: each.stats for each in self._reflectors()}

    def dead(self) -> list[str]:
        """The kinds whose thread has ended unexpectedly."""
        if not self._started or self._stopped:
            return []
        with self._lock:  # a watch that is created is started before any reader sees it
            return [each.name for each in self._reflectors() if not each.alive]

    def pod_states(self, pods: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PodStateRecord]:
        """Current state of single (namespace, name) pods; a missing one is not in the result.

        Read from the API server, not from memory. Raises ConnectError or UnsafeDataError.
        """
        return self._live.pod_states(pods)

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        """As `snapshot`."""
        return self.snapshot()

    def snapshot(self) -> ClusterSnapshot:
        """The cluster as known now; `taken` is now, as long as no kind has been silent for too long.

        Raises UnsafeDataError when a kind has not been read yet, or has been silent for too long, and for an
        unexpected error.
        """
        self._check()
        try:
            with garbage_collector_paused():
                made = self._put_together(taken=self._clock.now())
        except RebalancerError:
            raise
        except Exception as error:
            part = self._parts.failed("snapshot", error)
            raise UnsafeDataError(f"{self._client.server}: the snapshot: an unexpected error: {part.cause}") from error
        self._parts.worked("snapshot")
        self._obstacles = made.obstacles
        return made

    def obstacles(self) -> tuple[Obstacle, ...]:
        """The obstacles of the last snapshot."""
        return self._obstacles

    # ---- watched kinds

    def _reflector(
        self,
        resource: Resource,
        item: type[Any],
        make: Callable[[], Any],
        *,
        metadata_only: bool = False,
        is_outdated: Callable[[Any], bool] = never,
    ) -> Reflector[Any, Any]:
        return Reflector(
            client=self._client,
            resource=resource,
            item=item,
            make=make,
            metadata_only=metadata_only,
            is_outdated=is_outdated,
            parts=self._parts,
            monotonic=self._monotonic,
            pause=self._pause,
            chance=self._chance,
        )

    def _reflectors(self) -> list[Reflector[Any, Any]]:
        fixed = [self._nodes, self._pods, self._spaces, self._classes, self._budgets]
        optional = [each for each in self._may_miss() if each is not None]
        return [*fixed, *self._workloads.values(), *optional]

    def _may_miss(self) -> tuple[Reflector[Any, Any] | None, ...]:
        """Those that a snapshot is made without where we may not read them: without volumes every claim counts as
        local, without quotas none refuses, without autoscalers none is waited for, and without the others the landings
        of pods that they concern aren't known."""
        return (self._volumes, self._csi_nodes, self._csi_drivers, self._services, self._quotas, self._autoscalers)

    def _needed(self) -> list[Reflector[Any, Any]]:
        """All but those that may be missing and that we may not read."""
        may_miss = self._may_miss()
        return [each for each in self._reflectors() if each not in may_miss or not each.denied]

    def _follow_what_is_needed(self, *, uses_claims: bool, references: Sequence[OwnerReference]) -> None:
        """Start the watches that pods with claims, and pods of these owners, need besides."""
        with self._lock:
            if self._stopped:
                return
            if self._volumes is None and uses_claims:
                self._volumes = self._reflector(
                    VOLUMES, PersistentVolume, partial(Records[Any, Any], itself, "PersistentVolume")
                )
                self._volumes.start()
                self._csi_nodes = self._reflector(CSI_NODES, CsiNode, partial(Records[Any, Any], itself, "CSINode"))
                self._csi_nodes.start()
                self._csi_drivers = self._reflector(
                    CSI_DRIVERS, CsiDriverObject, partial(Records[Any, Any], itself, "CSIDriver")
                )
                self._csi_drivers.start()
            before = self._workloads["ReplicaSet"]
            if not self._whole_replicasets and standalone_replicasets(references, before.known):
                self._whole_replicasets = True
                before.stop()
                whole = self._reflector(REPLICASETS, Workload, _keeping("ReplicaSet"))
                whole.stats = before.stats
                self._workloads["ReplicaSet"] = whole
                whole.start()

    def _all_read(self) -> bool:
        return all(each.store is not None for each in self._needed())

    def _check(self) -> None:
        """Raises UnsafeDataError while a needed kind is missing or too old."""
        now, server = self._monotonic(), self._client.server
        for each in self._needed():
            if each.store is None:
                raise each.not_read()
            if not (age := each.age(now)) <= self._max_age:
                why = each.trouble.removeprefix(f"{server}: ") or "no event and no bookmark came"
                old = f"is {age:.0f} s old, at most {self._max_age:g} s are allowed" if age < inf else "is not current"
                raise UnsafeDataError(f"{server}: the cache of {each.name} {old}: {why}")

    # ---- the snapshot

    def _put_together(self, *, taken: float) -> ClusterSnapshot:
        # In the order of a live snapshot: a pod's node was known before it, and budgets change fastest.
        nodes = self._nodes.known.columns()
        spaces = sorted(self._spaces.known.all(), key=lambda space: space.metadata.name)
        pods: PodsTaken = self._pods.known.taken()
        owned = self._owners({number: pods.owners[number] for number in pods.owned()})
        claims = self._claims()
        csi_nodes, csi_drivers, services = map(_unless_denied, (self._csi_nodes, self._csi_drivers, self._services))
        quotas = [] if self._quotas.denied else self._quotas.known.all()
        autoscalers = [] if self._autoscalers.denied else self._autoscalers.known.all()
        budgets = sorted(self._budgets.known.all(), key=lambda budget: (budget.namespace, budget.name))
        # A new pod may need a kind that is not watched yet.
        known = self._owners_taken is not None and owned.numbers is self._owners_taken.numbers
        references = [] if known else [reference for _, reference in owned.references.values()]
        self._follow_what_is_needed(uses_claims=pods.uses_claims, references=references)
        self._owners_taken = owned
        self._check()
        names = tuple(dict.fromkeys([*(space.metadata.name for space in spaces), *pods.inhabited()]))
        return put_together(
            taken=taken,
            minor=self._pods.known.minor,
            nodes=nodes,
            pods=pods.columns(
                nodes={name: index for index, name in enumerate(nodes.names)},
                namespaces={name: index for index, name in enumerate(names)},
                owners=owned.numbers,
            ),
            pod_templates=pods.pod_templates,
            namespaces=names,
            statuses=tuple(pods.statuses),
            spaces=spaces,
            classes=self._classes.known.all(),
            owners=owned.owners.records,
            listed_kinds=KEPT_WITHOUT_PODS & owned.named,
            budgets=budgets,
            claims=claims,
            csi_nodes=csi_nodes,
            csi_drivers=csi_drivers,
            services=services,
            quotas=sorted(quotas, key=lambda quota: (quota.namespace, quota.name)),
            autoscalers=sorted(autoscalers, key=lambda each: (each.namespace, each.name)),
            obstacles=[
                *owned.owners.knots.values(),
                *unread_workloads(owned.owners.workloads),
                *chain.from_iterable(
                    each.known.obstacles()
                    for each in (
                        self._spaces,
                        self._classes,
                        self._budgets,
                        self._quotas,
                        self._autoscalers,
                        self._csi_nodes,
                        self._csi_drivers,
                        self._services,
                    )
                    if each is not None and each.store is not None and not each.denied
                ),
            ],
            causes=pods.causes,
        )

    def _owners(self, references: Mapping[int, tuple[str, OwnerReference]]) -> "_OwnersTaken":
        """The owners of these references by number; those of the last snapshot as far as they are the same."""
        before = self._owners_taken
        same = before is not None and before.references == references
        named = before.named if before is not None and same else frozenset(named_kinds(references.values()))
        workloads: dict[str, tuple[str, Workload]] = {}
        for kind, reflector in self._workloads.items():
            if kind in named:
                workloads |= reflector.known.by_uid()
        if before is not None and same and (owners := before.owners.with_workloads(workloads)) is not None:
            numbers = before.numbers
        else:
            known = before.owners.known if before is not None else {}
            owners = Owners(workloads=workloads, known=known if len(known) <= 2 * len(workloads) else {})
            numbers = {number: owners.number(*reference) for number, reference in references.items()}
            owners.add_those_without_pods()
        return _OwnersTaken(references=references, named=named, owners=owners, numbers=numbers)

    def _claims(self) -> BoundClaims | None:
        if self._volumes is None:
            return BoundClaims()
        if self._volumes.denied:
            return None
        volumes = self._volumes.known
        if self._claims_of is None or self._claims_of[:2] != (volumes, volumes.version):
            version, claims = volumes.version, BoundClaims()
            claims.add(volumes.all())
            # Kept until a volume changes, which is rare: each of thousands has its own affinity.
            self._claims_of = volumes, version, claims
        return self._claims_of[2]


def _unless_denied(reflector: Reflector[Any, Any] | None) -> list[Any] | None:
    """What is known of a kind: nothing while it isn't needed, None where we may not read it."""
    if reflector is None:
        return []
    return None if reflector.denied else reflector.known.all()


def _keeping(kind: str) -> Callable[[], Workloads]:
    return lambda: Records(lambda workload: (kind, with_shared_strings(workload)), kind)
