"""Measured usage of a snapshot's nodes and pods: CPU, and other resources by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.reason import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """Amounts of one resource in a unit of its own: bytes of memory, or a share 0..1 with a capacity of 1.

    NaN = not known, as in `Usage`.
    """

    node: Floats
    """(nodes,) in use, by everything on the node."""
    capacity: Floats
    """(nodes,) the whole of a share."""
    pod: Floats
    """(pods,)"""
    relief: Floats | None = None
    """(pods,) the amount that is free once the pod has left, if different; None = the same."""
    samples: Floats
    """(samples, nodes) amounts at the times of `Usage.samples`; the last row is now, and the only one of a resource
    without thresholds."""

    @property
    def relieved(self) -> Floats:
        """(pods,) the amount that is free once the pod has left."""
        return self.pod if self.relief is None else self.relief

    @property
    def freed(self) -> Floats:
        """(pods,) share of a pod's amount that is free once it has left, 0..1: the rest of a working set is cache,
        which counts as available. NaN where it isn't known."""
        share = np.full(len(self.pod), np.nan)
        np.divide(self.relieved, self.pod, out=share, where=self.pod > 0)
        out: Floats = np.clip(share, 0.0, 1.0)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of nodes and pods from one source, at one moment.

    NaN means "not known"; it never means zero. A node whose figure is unreliable (no sample, stale, not finite, two
    nodes with one name) is NaN, with the reason in `problems`.
    """

    source: str
    at: float
    """Evaluation time, seconds since the epoch."""
    window_seconds: float
    """Length of the rate window of the figures: a departed pod is still measured for this long."""
    node_cpu_millicores: Floats
    """(nodes,)"""
    pod_cpu_millicores: Floats
    """(pods,)"""
    sample_times: Floats
    """(samples, nodes) time of the *raw* sample behind each of `samples`, oldest first; NaN where unknown."""
    samples: Floats
    """(samples, nodes) node CPU in millicores over the stabilization window, oldest first; the last row is now."""
    departed_millicores: Floats | None = None
    """(nodes,) CPU still measured on a node for pods that are no longer there; None where the source doesn't show
    it."""
    contention: "Contention | None" = None
    """None where it was not requested."""
    resources: Mapping[str, ResourceUsage] = field(default_factory=dict)
    """Name -> amounts, of every resource besides CPU that the source has."""
    swap_in_pages: Floats | None = None
    """(nodes,) pages per second that are read back from swap, NaN where unknown; None where the source doesn't have
    it."""
    problems: Mapping[int, Refusal]
    """Node index -> why it is skipped."""
    warnings: tuple[str, ...] = ()
    """The source's warnings; not empty means the figures are partial."""
    notes: tuple[str, ...] = ()
    """What the source doesn't have, and what is not checked therefore."""
    sample_seconds: float = 0.0
    """Between two rows of `samples`; 0 where they are not that regular."""

    def of(self, resource: str, nodes: Nodes) -> ResourceUsage | None:
        """Amounts of a resource, CPU too (in millicores); None where the source doesn't have it."""
        if resource != CPU:
            return self.resources.get(resource)
        return ResourceUsage(
            node=self.node_cpu_millicores,
            capacity=nodes.cpu_capacity_millicores,
            pod=self.pod_cpu_millicores,
            samples=self.samples,
        )

    @property
    def coverage(self) -> float:
        """Share of the nodes with fresh usage, 0..1."""
        known = np.isfinite(self.node_cpu_millicores)
        return float(np.count_nonzero(known)) / len(known) if len(known) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """CPU contention: shares of time over the rate window, 0..1; NaN = not known.

    Sources: node_exporter's and the kubelet's PSI counters, cAdvisor's CFS counters.
    """

    node_pressure: Floats
    """(nodes,) share of time in which some task of the node waited for CPU."""
    pod_pressure: Floats
    """(pods,) the same of the pod's own tasks; of its containers, the worst."""
    pod_throttled: Floats
    """(pods,) share of CFS periods in which its own limit throttled it; of its containers, the worst."""
