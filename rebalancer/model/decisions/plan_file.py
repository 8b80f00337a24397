"""The evictions of a plan as a file holds them: what was approved, of which cluster and policy, and for how long."""

from dataclasses import dataclass, field

from rebalancer.model.notation.document import Amount, Instant, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTarget:
    """A node on which a replacement may land."""

    node: str
    probability: Share
    cpu_share_planned: float | None
    """Of the node with the whole plan: the mean over the draws of its landings."""
    cpu_share_planned_p99: float | None
    """99th percentile over the same draws; null = the mean is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEviction:
    """An eviction of the plan."""

    namespace: str
    pod: str
    uid: str
    node: str
    """The node that the pod leaves."""
    pool: str
    service: str
    strategy: str
    reason: str
    detail: str
    """The part of the policy by which it is in dry run; empty where it acts."""
    cpu_millicores: Amount
    target_nodes: tuple[PlannedTarget, ...]
    """The likeliest first; empty for a finished pod, which has no replacement."""
    replacement_first: bool = False
    """The replacement is Ready before the pod goes."""

    @property
    def full_name(self) -> str:
        """`namespace/pod`."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan that can be carried out once."""

    id: str
    """Also the id of the cycle that carries it out."""
    version: str
    """Of rebalancer."""
    cluster: str
    """`cluster` of the policy."""
    cluster_uid: str
    """UID of the namespace kube-system; empty where the API server doesn't tell it."""
    policy_hash: str
    """SHA-256 of the policy's values."""
    taken_at: Instant
    expires_at: Instant
    evictions: tuple[PlannedEviction, ...]
    """In the order of the plan."""
    digest: str = field(default="", compare=False)
    """SHA-256 over all other fields, as `sha256:` and hexadecimal digits; empty until it is written."""
