"""The resources that the lab serves."""

from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]
"""An object of the API, as its JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource of the API. `plural` is the store's key; of several with one plural the first is stored."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ("status",)
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def qualified(self) -> str:
        """The name in error messages: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _kind(
    api: str,
    kind: str,
    plural: str,
    short: str = "",
    *,
    namespaced: bool = True,
    subresources: tuple[str, ...] = ("status",),
    categories: tuple[str, ...] = (),
) -> Kind:
    """`api`: group and version, as in an object's `apiVersion`."""
    group, _, version = api.rpartition("/")
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        short_names=(short,) if short else (),
        subresources=subresources,
        categories=categories,
    )


_ALL, _SCALED = ("all",), ("status", "scale")

KINDS: tuple[Kind, ...] = (
    _kind("v1", "Node", "nodes", "no", namespaced=False),
    _kind("v1", "Namespace", "namespaces", "ns", namespaced=False),
    _kind("v1", "Pod", "pods", "po", subresources=("status", "eviction", "log"), categories=_ALL),
    _kind("v1", "Event", "events", "ev", subresources=()),
    # the same objects in their newer form; stored, and shown, in the older one
    _kind("events.k8s.io/v1", "Event", "events", "ev", subresources=()),
    _kind("v1", "Service", "services", "svc", categories=_ALL),
    _kind("v1", "ServiceAccount", "serviceaccounts", "sa", subresources=()),
    _kind("v1", "ConfigMap", "configmaps", "cm", subresources=()),
    _kind("v1", "Secret", "secrets", subresources=()),
    _kind("v1", "LimitRange", "limitranges", "limits", subresources=()),
    _kind("v1", "Endpoints", "endpoints", "ep", subresources=()),
    _kind("v1", "PersistentVolume", "persistentvolumes", "pv", namespaced=False),
    _kind("v1", "ResourceQuota", "resourcequotas", "quota"),
    _kind("storage.k8s.io/v1", "CSINode", "csinodes", namespaced=False, subresources=()),
    _kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False, subresources=()),
    _kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc"),
    _kind("apps/v1", "Deployment", "deployments", "deploy", subresources=_SCALED, categories=_ALL),
    _kind("apps/v1", "ReplicaSet", "replicasets", "rs", subresources=_SCALED, categories=_ALL),
    _kind("apps/v1", "StatefulSet", "statefulsets", "sts", subresources=_SCALED, categories=_ALL),
    _kind("apps/v1", "DaemonSet", "daemonsets", "ds", categories=_ALL),
    _kind("batch/v1", "Job", "jobs", categories=_ALL),
    _kind("batch/v1", "CronJob", "cronjobs", "cj", categories=_ALL),
    _kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb"),
    _kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", categories=_ALL),
    _kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", namespaced=False, subresources=()),
    _kind("coordination.k8s.io/v1", "Lease", "leases", subresources=()),
    _kind("rbac.authorization.k8s.io/v1", "Role", "roles", subresources=()),
    _kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", subresources=()),
    _kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False, subresources=()),
    _kind(
        "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, subresources=()
    ),
    _kind("networking.k8s.io/v1", "Ingress", "ingresses", "ing", subresources=()),
    _kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "netpol", subresources=()),
    _kind("storage.k8s.io/v1", "StorageClass", "storageclasses", "sc", namespaced=False, subresources=()),
    _kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        subresources=(),
    ),
    _kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        subresources=(),
    ),
)

METRICS_GROUP = "metrics.k8s.io"
METRICS_VERSION = "v1beta1"


def by_plural(plural: str) -> Kind:
    """The kind that the store keeps under `plural`. Raises KeyError."""
    for kind in KINDS:
        if kind.plural == plural:
            return kind
    raise KeyError(plural)


def by_path(group: str, version: str, plural: str) -> Kind | None:
    """The kind that an API path names, or None."""
    for kind in KINDS:
        if kind.plural == plural and kind.group == group and kind.version == version:
            return kind
    return None
