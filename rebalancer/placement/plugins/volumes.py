"""VolumeRestrictions and NodeVolumeLimits: ReadWriteOncePod claims, and a node's most volumes of a CSI driver.

A volume that pods of one node share is counted for each of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.releases import DRIVERS_MAY_BE_REQUIRED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.cluster.kinds import Counted, Group, Kind
from rebalancer.placement.cluster.nodes import EPS
from rebalancer.placement.plugins.node_rules import Check

CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
TOO_MANY_VOLUMES = "node(s) exceed max volume count"


@dataclass(frozen=True, slots=True)
class Volumes:
    """The volumes of one kind of pod that other pods can be in the way of."""

    claims: tuple[Group, ...]
    """Pods that use its ReadWriteOncePod claims."""
    attached: tuple[tuple[Group, Floats, float], ...]
    """For each CSI driver of its volumes with a limit: pods with volumes of it, (nodes,) the most that can be attached,
    and the number of its own volumes."""
    drivers: tuple[tuple[str, Bools], ...] = ()
    """Each CSI driver of its volumes that keeps it off other nodes, and (nodes,) where it is."""

    @property
    def filters(self) -> bool:
        """Whether it can reject a node."""
        return bool(self.claims or self.attached or self.drivers)

    @property
    def matters(self) -> list[Counted]:
        """Pods that matter to it."""
        return [*map(Counted, self.claims), *(Counted(group) for group, _, _ in self.attached)]


def claims_of(template: PodTemplate) -> list[str]:
    """Names of the PersistentVolumeClaims of a template."""
    return [
        str(volume.persistent_volume_claim.get("claimName", ""))
        for volume in template.volumes
        if volume.persistent_volume_claim is not None
    ]


def compile_volumes(board: Board, kind: Kind, template: PodTemplate) -> Volumes:
    """Groups are shared by all kinds with the same claim or driver."""
    snapshot = board.snapshot

    def uses(claim: str, other: Kind, template: PodTemplate) -> float:
        return float(other.namespace == kind.namespace and claim in claims_of(template))

    def volumes(driver: str, other: Kind, template: PodTemplate) -> float:
        space = snapshot.namespaces[other.namespace]
        return float(sum(snapshot.claim_drivers.get((space, name)) == driver for name in claims_of(template)))

    space, attached = snapshot.namespaces[kind.namespace], []
    for driver, limit in (snapshot.volume_limits or {}).items():
        if own := volumes(driver, kind, template):
            attached.append((board.kinds.grouped(("volumes", driver), partial(volumes, driver)), limit, own))
    claims = tuple(
        board.kinds.grouped(("claim", space, claim), partial(uses, claim))
        for claim in claims_of(template)
        if (space, claim) in snapshot.exclusive_claims
    )
    drivers: tuple[tuple[str, Bools], ...] = ()
    if snapshot.minor >= DRIVERS_MAY_BE_REQUIRED:
        used = {snapshot.claim_drivers.get((space, claim), "") for claim in claims_of(template)}
        drivers = tuple((name, there) for name, there in (snapshot.drivers_at or {}).items() if name in used)
    return Volumes(claims, tuple(attached), drivers)


def drivers_unknown(snapshot: ClusterSnapshot, kind: Kind, template: PodTemplate) -> bool:
    """Whether a CSIDriver that can't be read may keep such pods off nodes."""
    if snapshot.drivers_at is not None or snapshot.minor < DRIVERS_MAY_BE_REQUIRED:
        return False
    space = snapshot.namespaces[kind.namespace]
    return any((space, claim) in snapshot.claim_drivers for claim in claims_of(template))


def restrictions(board: Board, volumes: Volumes) -> Iterator[Check]:
    """VolumeRestrictions: a claim that is in use rejects every node."""
    for group in volumes.claims:
        if board.present(board.tally(group)).sum() > EPS:
            yield "VolumeRestrictions", np.zeros(len(board.nodes), dtype=np.bool_), CLAIM_IN_USE


def limits(board: Board, volumes: Volumes) -> Iterator[Check]:
    """NodeVolumeLimits."""
    for driver, there in volumes.drivers:
        yield "NodeVolumeLimits", there, f"{driver} CSI driver is not installed on the node"
    for group, limit, own in volumes.attached:
        yield "NodeVolumeLimits", board.present(board.tally(group)) + own <= limit + EPS, TOO_MANY_VOLUMES
