"""The short form of a practice cluster's contents: nodes, workloads, PodDisruptionBudgets."""

from typing import Any, Literal

import msgspec

from rebalancer.lab.loads.cpu import Breaks, CpuModel, MemoryModel
from rebalancer.model.measured.history import DAY_SECONDS

WorkloadKind = Literal[
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod", "Mirror", "ReplicationController"
]


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: immutable, strict."""


class TaintSpec(Spec, frozen=True, kw_only=True):
    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    value: str = ""


class NodeSpec(Spec, frozen=True, kw_only=True):
    """A machine."""

    name: str
    cpu: float = 16.0
    """Cores."""
    memory: str = "64Gi"
    pods: int = 110
    pool: str = ""
    """Becomes the label `pool`."""
    zone: str = ""
    """Becomes the label `topology.kubernetes.io/zone`."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[TaintSpec, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    overhead_cores: float = 0.3
    """CPU that the machine uses besides its pods."""
    reserved_cores: float = 0.0
    """Capacity less allocatable."""
    age_seconds: float = 30.0 * DAY_SECONDS
    """At the start of the lab; a node that is added later is new."""
    images: dict[str, int | str] = {}
    """Image name with its tag -> bytes (or a quantity): images on the node besides those of its pods."""


class PdbSpec(Spec, frozen=True, kw_only=True):
    """A PodDisruptionBudget over the workload's pods. Exactly one of the two numbers."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    name: str = ""
    """The workload's name when empty."""
    selector: dict[str, str] | None = None
    """Match labels; the workload's own when absent."""
    unhealthy: Literal["", "IfHealthyBudget", "AlwaysAllow"] = ""


class HpaSpec(Spec, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler over the workload."""

    min_replicas: int = 1
    max_replicas: int
    utilization: int = 80
    """Percent of the pods' CPU requests that they should use on average."""


class WorkloadSpec(Spec, frozen=True, kw_only=True):
    """A workload and where its pods are when the lab starts."""

    name: str
    namespace: str = "default"
    kind: WorkloadKind = "Deployment"
    place: dict[str, int] = {}
    """Node name -> pods on it at the start. A DaemonSet is placed on every node that admits it."""
    replicas: int | None = None
    """As many as are placed when absent; those beyond start Pending."""
    cpu_request: str = ""
    memory_request: str = ""
    cpu_limit: str = ""
    memory_limit: str = ""
    cpu: CpuModel = CpuModel()
    """CPU demand of each pod."""
    memory: MemoryModel | None = None
    """Working set of each pod; when absent about 200 MiB, a little more while its CPU is busy."""
    resources: dict[str, float] = {}
    """Name -> amount of it that each pod uses; Prometheus has it as `lab_node_usage` and `lab_pod_usage`."""
    sidecar: str = ""
    """Name of a second container that uses a tenth of the pod's CPU and requests 10m and 32Mi."""
    pdb: PdbSpec | None = None
    hpa: HpaSpec | None = None
    """Deployment or StatefulSet: scaled by its CPU; see `horizontal.py`."""
    priority: int = 0
    priority_class: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    """Of the pods."""
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] | None = None
    volumes: tuple[dict[str, Any], ...] = ()
    """As in a pod's spec."""
    topology_spread: tuple[dict[str, Any], ...] = ()
    """`topologySpreadConstraints`, as in a pod's spec."""
    scheduler_name: str = "default-scheduler"
    host_ports: tuple[int, ...] = ()
    """Host TCP ports of each pod."""
    init_containers: tuple[dict[str, Any], ...] = ()
    """As in a pod's spec."""
    gates: tuple[str, ...] = ()
    """Names of scheduling gates: the scheduler ignores the pods until they are removed."""
    image: str = ""
    image_size: int | str = ""
    """Bytes (or a quantity) of the image. Empty: nodes don't report it and pulling it takes no time."""
    parallel: bool = True
    """StatefulSet: podManagementPolicy Parallel (default) or OrderedReady."""
    completions: int | None = None
    run_seconds: float | None = None
    """Job: how long a pod runs until it has succeeded; for ever when absent."""
    schedule: str = ""
    """CronJob: when it creates Jobs, see `cron_jobs.py`. Empty: it is suspended, and one Job of it runs. With it no
    pods are placed."""
    ready: bool = True
    """Whether its pods ever become Ready."""
    breaks: Breaks | None = None
    """How its containers end by themselves."""
    restarts: int = 0
    """How often the containers that run at the start of the lab have restarted."""
    start_seconds: float | None = None
    stop_seconds: float | None = None
    """Start and termination delay in lab seconds; the scenario's when absent."""
    age_seconds: float = 2.0 * DAY_SECONDS
    """Age of the pods at the start; the workload is as old again."""
