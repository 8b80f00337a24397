"""Constraints that PersistentVolumes put on the pods that use their claims.

A volume's required node affinity and its zone and region labels both bind its pod. The labels follow kube-scheduler's
VolumeZone plugin (pkg/scheduler/framework/plugins/volumezone, v1.36): a node without any of the four labels is not
checked, and a volume's beta label is compared with the node's newer one where the node has no beta label.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product

import numpy as np
from msgspec.structs import replace

from rebalancer.kube.snapshot.quarantine import obstacle_of
from rebalancer.kube.snapshot.records import Empty, Meta, Object, Wire
from rebalancer.model.cluster.objects import Int32, NodeSelector, NodeSelectorTerm, Requirement
from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.model.notation.arrays import Bools, Floats

HOSTNAME_LABEL = "kubernetes.io/hostname"
SUCCESSORS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
TOPOLOGY_LABELS = (*SUCCESSORS, *SUCCESSORS.values())
SEVERAL_ZONES = "__"
ONE_POD_ONLY, ONE_NODE_ONLY = "ReadWriteOncePod", "ReadWriteOnce"
LET_GO = frozenset({"Released", "Failed"})

Claim = tuple[str, str]
Zones = tuple[tuple[str, tuple[str, ...]], ...]


class ClaimReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class VolumeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    driver: str = ""


class VolumeSpec(Wire, frozen=True):
    local: Empty | None = None
    host_path: Empty | None = None
    node_affinity: VolumeAffinity | None = None
    claim_ref: ClaimReference | None = None
    access_modes: list[str] | None = None
    csi: CsiSource | None = None


class VolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Object, frozen=True):
    metadata: Meta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class CsiAllocatable(Wire, frozen=True):
    count: Int32 | None = None


class CsiDriver(Wire, frozen=True):
    name: str = ""
    allocatable: CsiAllocatable | None = None


class CsiNodeSpec(Wire, frozen=True):
    drivers: list[CsiDriver] | None = None


class CsiNode(Object, frozen=True):
    """The CSI drivers of the node with the same name."""

    metadata: Meta
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(Wire, frozen=True):
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriverObject(Object, frozen=True):
    """A CSIDriver; its name is the driver's."""

    metadata: Meta
    spec: CsiDriverSpec = CsiDriverSpec()


class BoundClaims:
    """A collector of volumes: properties of the claims that they are bound to, by (namespace, name)."""

    def __init__(self) -> None:
        self.local: set[Claim] = set()
        """Claims whose volume stays on one node."""
        self.nodes: dict[Claim, NodeSelector] = {}
        """Claim -> the nodes on which its volume can be used, where not on all."""
        self.exclusive: set[Claim] = set()
        """Claims that one pod at a time may use."""
        self.bound: set[Claim] = set()
        self.one_node: set[Claim] = set()
        """Claims that pods of one node at a time may use."""
        self.drivers: dict[Claim, str] = {}
        """Claim -> CSI driver of its volume."""
        self.obstacles: list[Obstacle] = []
        # Volumes of a zone have equal selectors.
        self._selectors: dict[tuple[NodeSelector | None, Zones], NodeSelector | None] = {}

    def add(self, volumes: Sequence[PersistentVolume], /) -> None:
        """Add one page."""
        for volume in volumes:
            if volume.unread:
                self.obstacles.append(obstacle_of("PersistentVolume", volume, volume.unread))
            spec, reference = volume.spec, volume.spec.claim_ref
            # A released volume still names its claim; a new claim of that name has another volume.
            if reference is None or volume.status.phase in LET_GO:
                continue
            claim = (reference.namespace, reference.name)
            if volume.unread:
                # what it asks of a node isn't known: its pods stay
                self.bound.add(claim)
                self.local.add(claim)
                continue
            self.bound.add(claim)
            if set(spec.access_modes or ()) == {ONE_NODE_ONLY}:
                self.one_node.add(claim)
            if spec.csi is not None and spec.csi.driver:
                self.drivers[claim] = spec.csi.driver
            if _is_local(spec):
                self.local.add(claim)
            if ONE_POD_ONLY in (spec.access_modes or ()):
                self.exclusive.add(claim)
            selector = self._selector(spec, volume.metadata.labels or {})
            if selector is not None:
                self.nodes[claim] = selector

    def _selector(self, spec: VolumeSpec, labels: Mapping[str, str]) -> NodeSelector | None:
        key = spec.node_affinity.required if spec.node_affinity else None, _zones(labels)
        if key not in self._selectors:
            self._selectors[key] = _both(*key)
        return self._selectors[key]


def volume_limits(nodes: Iterable[CsiNode], names: Sequence[str]) -> dict[str, Floats]:
    """CSI driver -> (names,) volumes that each node can have attached; infinite where the driver states no limit, and 0
    on a node whose limits can't be read."""
    index = {name: number for number, name in enumerate(names)}
    out: dict[str, Floats] = {}
    nodes = list(nodes)
    for node in nodes:
        for driver in node.spec.drivers or ():
            limit = driver.allocatable.count if driver.allocatable is not None else None
            if limit is not None and node.metadata.name in index:
                column = out.setdefault(driver.name, np.full(len(names), np.inf))
                column[index[node.metadata.name]] = limit
    for row in [index[node.metadata.name] for node in nodes if node.unread and node.metadata.name in index]:
        for column in out.values():
            column[row] = 0.0
    return out


def drivers_at(drivers: Iterable[CsiDriverObject], nodes: Iterable[CsiNode], names: Sequence[str]) -> dict[str, Bools]:
    """CSI driver that pods with its volumes can't be scheduled without -> (names,) the nodes that have it."""
    required = {each.metadata.name for each in drivers if each.unread or each.spec.prevent_pod_scheduling_if_missing}
    index = {name: number for number, name in enumerate(names)}
    out = {name: np.zeros(len(names), dtype=np.bool_) for name in sorted(required)}
    for node in nodes if out else ():
        for driver in node.spec.drivers or ():
            if driver.name in out and node.metadata.name in index:
                out[driver.name][index[node.metadata.name]] = True
    return out


def _is_local(spec: VolumeSpec) -> bool:
    if spec.local is not None or spec.host_path is not None:
        return True
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = required.node_selector_terms if required else ()
    return any(
        rule.key == HOSTNAME_LABEL or rule in term.match_fields
        for term in terms
        for rule in (*term.match_expressions, *term.match_fields)
    )


def _zones(labels: Mapping[str, str]) -> Zones:
    """The topology labels with their values; one with an empty value among them is ignored, as the plugin does."""
    found = (
        (key, [part.strip() for part in labels[key].split(SEVERAL_ZONES)]) for key in TOPOLOGY_LABELS if key in labels
    )
    return tuple((key, tuple(sorted(parts))) for key, parts in found if all(parts))


def _both(required: NodeSelector | None, zones: Zones) -> NodeSelector | None:
    """The nodes that satisfy the affinity and the labels; None for all nodes."""
    if not zones:
        return required
    # A term without expressions selects no node: it must not begin to select some by added expressions.
    terms = [NodeSelectorTerm()]
    if required is not None:
        terms = [term for term in required.node_selector_terms if term.match_expressions or term.match_fields]
    return NodeSelector(
        node_selector_terms=tuple(
            replace(term, match_expressions=(*term.match_expressions, *rules))
            for term in terms
            for rules in _alternatives(zones)
        )
    )


def _alternatives(zones: Zones) -> list[tuple[Requirement, ...]]:
    """Lists of expressions; a node must satisfy all of one list."""
    ways: list[list[tuple[Requirement, ...]]] = []
    for key, values in zones:
        ways.append([(Requirement(key=key, operator="In", values=values),)])
        if key in SUCCESSORS:
            ways[-1].append((_lacks(key), Requirement(key=SUCCESSORS[key], operator="In", values=values)))
    unlabelled = tuple(_lacks(key) for key in TOPOLOGY_LABELS)
    return [tuple(chain.from_iterable(choice)) for choice in product(*ways)] + [unlabelled]


def _lacks(key: str) -> Requirement:
    return Requirement(key=key, operator="DoesNotExist")
