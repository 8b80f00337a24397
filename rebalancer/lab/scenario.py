"""What a practice cluster is made of: a short form for nodes and workloads, in YAML or Python.

`node(...)` and `workload(...)` are the builders that tests use; a YAML file has the same fields. Unknown fields are
errors. Scenarios that ship with the package stand in `scenarios/`.
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from rebalancer.lab.cpu import CpuModel

Spec = TypeVar("Spec")
WorkloadKind = Literal[
    "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "Pod", "Mirror", "ReplicationController"
]


class ScenarioError(ValueError):
    """A scenario that can't be used; one line."""


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base: immutable, strict."""


class TaintSpec(_Spec, frozen=True, kw_only=True):
    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    value: str = ""


class NodeSpec(_Spec, frozen=True, kw_only=True):
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
    """What the machine uses besides its pods."""
    reserved_cores: float = 0.0
    """Capacity less allocatable."""
    age_seconds: float = 30 * 86400.0
    """At the start of the lab; a node that is added later is new."""
    images: dict[str, int | str] = {}
    """Image name with its tag -> bytes (or a quantity): what is on the node besides what its pods brought."""


class PdbSpec(_Spec, frozen=True, kw_only=True):
    """A PodDisruptionBudget over the workload's pods. Exactly one of the two numbers."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    name: str = ""
    """The workload's name when empty."""
    selector: dict[str, str] | None = None
    """Match labels; the workload's own when absent."""
    unhealthy: Literal["", "IfHealthyBudget", "AlwaysAllow"] = ""


class WorkloadSpec(_Spec, frozen=True, kw_only=True):
    """A workload and where its pods are when the lab starts."""

    name: str
    namespace: str = "default"
    kind: WorkloadKind = "Deployment"
    place: dict[str, int] = {}
    """Node name -> pods on it at the start. A DaemonSet is placed on every node that takes it."""
    replicas: int | None = None
    """As many as are placed when absent; what exceeds them starts Pending."""
    cpu_request: str = ""
    memory_request: str = ""
    cpu_limit: str = ""
    memory_limit: str = ""
    cpu: CpuModel = CpuModel()
    """What each pod really uses."""
    sidecar: str = ""
    """Name of a second container that uses a tenth of the pod's CPU and requests 10m and 32Mi."""
    pdb: PdbSpec | None = None
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
    """TCP ports of the machine that each pod takes."""
    init_containers: tuple[dict[str, Any], ...] = ()
    """As in a pod's spec."""
    gates: tuple[str, ...] = ()
    """Names of scheduling gates: the scheduler leaves the pods alone until somebody takes them off."""
    image: str = ""
    image_size: int | str = ""
    """Bytes (or a quantity) of the image. Empty: nodes don't report it and pulling it takes no time."""
    parallel: bool = True
    """StatefulSet: podManagementPolicy Parallel (default) or OrderedReady."""
    completions: int | None = None
    run_seconds: float | None = None
    """Job: how long a pod runs until it has succeeded; for ever when absent."""
    ready: bool = True
    """Whether its pods ever get Ready."""
    start_seconds: float | None = None
    stop_seconds: float | None = None
    """Start and termination delay in lab seconds; the scenario's when absent."""
    age_seconds: float = 2 * 86400.0
    """Age of the pods at the start; the workload is as old again."""


class Scenario(_Spec, frozen=True, kw_only=True):
    """A practice cluster."""

    name: str = "lab"
    nodes: tuple[NodeSpec, ...] = ()
    workloads: tuple[WorkloadSpec, ...] = ()
    priority_classes: dict[str, int] = {}
    start_seconds: float = 20.0
    """From bound to Ready."""
    stop_seconds: float = 10.0
    """From deletionTimestamp to gone."""
    pull_bytes_per_second: float | None = None
    """How fast a node pulls an image that it doesn't have; no time when absent."""
    scheduler: Literal["default", "differs"] = "default"
    """`differs`: other weights, a sample of a few nodes, a view that is some seconds old; see `scheduler.py`."""
    rate_window_seconds: float = 300.0
    """Over which Prometheus shows means: a pod that left is still seen for this long."""
    anchor_hour: float | None = None
    """Hour of the day that the CPU curves start at. Absent: the lab clock's hour (UTC)."""
    history_days: float = 8.0


def node(name: str, **fields: Any) -> NodeSpec:
    """A node; fields as in `NodeSpec`, taints as mappings or `TaintSpec`."""
    return _convert({"name": name, **fields}, NodeSpec, f"node {name}")


def workload(name: str, **fields: Any) -> WorkloadSpec:
    """A workload; fields as in `WorkloadSpec`. `cpu` may be a number: the cores that each pod uses, steadily."""
    if isinstance(fields.get("cpu"), int | float):
        fields["cpu"] = CpuModel(base=float(fields["cpu"]))
    return _convert({"name": name, **fields}, WorkloadSpec, f"workload {name}")


def scenario(*, nodes: tuple[NodeSpec, ...] | list[NodeSpec], workloads: Any = (), **fields: Any) -> Scenario:
    """A scenario from builders."""
    return Scenario(nodes=tuple(nodes), workloads=tuple(workloads), **fields)


def names() -> tuple[str, ...]:
    """The scenarios that ship with the package."""
    folder = resources.files("rebalancer.lab") / "scenarios"
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by name, or a YAML file by path. Raises ScenarioError."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ScenarioError(f"{path}: no such scenario file")
        return parse(path.read_bytes(), str(path))
    if name_or_path not in names():
        raise ScenarioError(f"no scenario {name_or_path!r}; there are {', '.join(names())}, or give a .yaml file")
    return parse((resources.files("rebalancer.lab") / "scenarios" / f"{name_or_path}.yaml").read_bytes(), name_or_path)


def parse(text: bytes, source: str) -> Scenario:
    """A scenario from YAML. A plain number for `cpu` of a workload is its base. Raises ScenarioError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ScenarioError(f"{source}: expected a mapping")
    document.setdefault("name", source)
    for each in document.get("workloads") or ():
        if isinstance(each, dict) and isinstance(each.get("cpu"), int | float):
            each["cpu"] = {"base": each["cpu"]}
    return _convert(document, Scenario, source)


def _convert(fields: Mapping[str, Any], type_: type[Spec], source: str) -> Spec:
    try:
        return msgspec.convert(_plain(fields), type_)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{source}: {error}") from None


def _plain(value: Any) -> Any:
    """Nested specs as plain data, so that one strict conversion checks everything."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
