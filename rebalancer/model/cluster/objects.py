"""Small Kubernetes types, under Kubernetes' own JSON names, so that an adapter can decode straight into them.

Only fields that a decision reads are here. Field meanings: the Kubernetes API reference, v1.36.
"""

from datetime import datetime
from math import nan
from typing import Annotated

import msgspec

# The ranges of the API's numbers. A larger one would overflow a column.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Noun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base: immutable, camelCase on the wire, unknown fields skipped."""


class Taint(Noun, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""
    """RFC 3339; set by the taint's author, often absent."""

    @property
    def added(self) -> float:
        """The same in seconds since the epoch; NaN where it is absent or no time."""
        try:
            return datetime.fromisoformat(self.time_added).timestamp()
        except (ValueError, OverflowError):
            return nan


class Toleration(Noun, frozen=True):
    """`operator` Equal (default), Exists; an empty key with Exists tolerates everything; empty effect = all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Noun, frozen=True):
    """One expression of a label or node selector: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Noun, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Noun, frozen=True):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Noun, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Noun, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Noun, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Noun, frozen=True):
    """The API server has merged `matchLabelKeys` into the selector already. No namespace at all = the pod's own."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class WeightedPodAffinityTerm(Noun, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Noun, frozen=True):
    """Serves pod affinity and pod anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Noun, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Noun, frozen=True):
    """`whenUnsatisfiable` is DoNotSchedule or ScheduleAnyway; the policies are Honor or Ignore."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Volume(Noun, frozen=True):
    """A volume, as far as it matters for moving its pod. `host_path` and `empty_dir` are None when absent."""

    host_path: dict[str, str] | None = None
    empty_dir: dict[str, str] | None = None
    persistent_volume_claim: dict[str, str | bool] | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


QOS_RANK = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


class PodTemplate(Noun, frozen=True):
    """The part of a pod that its template determines, as far as guards and placement read it.

    Resource figures are effective requests: the larger of the running containers' sum and each init container's
    (sidecars counted), plus overhead. Source: KEP-753, `resourcehelper.PodRequests`.
    """

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_ports: tuple[tuple[str, int, str], ...] = ()
    """(protocol, port, host IP) of every host port; the IP is 0.0.0.0 where none is given."""
    cpu_request_millicores: float = 0.0
    memory_request_bytes: float = 0.0
    memory_limits: tuple[float, ...] = ()
    """Bytes that each container may use, sidecars included, or the pod as a whole; empty where one has no limit."""
    cpu_scored_millicores: float = 0.0
    """As kube-scheduler scores it: 100m for each container that requests no CPU."""
    memory_scored_bytes: float = 0.0
    """As kube-scheduler scores it: 200 MB for each container that requests no memory."""
    scored_on_arrival: tuple[float, float] | None = None
    """CPU millicores and memory bytes that NodeResourcesFit scores for an incoming pod, where they differ from those of
    a running one: v1.36 ignores pod-level requests then."""
    extended_requests: dict[str, float] = {}
    images: tuple[str, ...] = ()
    """One for each container and init container, as written in the spec."""
    volume_images: tuple[str, ...] = ()
    """Of image volumes."""
    grace_seconds: float = 30.0
    """terminationGracePeriodSeconds."""
    priority_class: str = ""
    scheduler_name: str = "default-scheduler"
    qos: str = "BestEffort"
    """Guaranteed, Burstable or BestEffort."""
    required_features: tuple[str, ...] = ()
    """Features that a node must declare to run it."""
    not_modelled: str = ""
    """What of it the scheduler's model leaves out, so that where its pods go isn't known."""
