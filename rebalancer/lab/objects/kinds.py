"""The resources that the lab serves."""

from dataclasses import dataclass


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


_ALL = ("all",)

KINDS: tuple[Kind, ...] = (
    Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False, short_names=("no",)),
    Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False, short_names=("ns",)),
    Kind(
        group="",
        version="v1",
        kind="Pod",
        plural="pods",
        short_names=("po",),
        subresources=("status", "eviction", "log"),
        categories=_ALL,
    ),
    Kind(group="", version="v1", kind="Event", plural="events", short_names=("ev",), subresources=()),
    # the same objects in their newer form; stored, and shown, in the older one
    Kind(group="events.k8s.io", version="v1", kind="Event", plural="events", short_names=("ev",), subresources=()),
    Kind(group="", version="v1", kind="Service", plural="services", short_names=("svc",), categories=_ALL),
    Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts", short_names=("sa",), subresources=()),
    Kind(group="", version="v1", kind="ConfigMap", plural="configmaps", short_names=("cm",), subresources=()),
    Kind(group="", version="v1", kind="Secret", plural="secrets", subresources=()),
    Kind(group="", version="v1", kind="LimitRange", plural="limitranges", short_names=("limits",), subresources=()),
    Kind(group="", version="v1", kind="Endpoints", plural="endpoints", short_names=("ep",), subresources=()),
    Kind(
        group="",
        version="v1",
        kind="PersistentVolume",
        plural="persistentvolumes",
        namespaced=False,
        short_names=("pv",),
    ),
    Kind(group="", version="v1", kind="ResourceQuota", plural="resourcequotas", short_names=("quota",)),
    Kind(group="storage.k8s.io", version="v1", kind="CSINode", plural="csinodes", namespaced=False, subresources=()),
    Kind(group="", version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims", short_names=("pvc",)),
    Kind(
        group="apps",
        version="v1",
        kind="Deployment",
        plural="deployments",
        short_names=("deploy",),
        subresources=("status", "scale"),
        categories=_ALL,
    ),
    Kind(
        group="apps",
        version="v1",
        kind="ReplicaSet",
        plural="replicasets",
        short_names=("rs",),
        subresources=("status", "scale"),
        categories=_ALL,
    ),
    Kind(
        group="apps",
        version="v1",
        kind="StatefulSet",
        plural="statefulsets",
        short_names=("sts",),
        subresources=("status", "scale"),
        categories=_ALL,
    ),
    Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets", short_names=("ds",), categories=_ALL),
    Kind(group="batch", version="v1", kind="Job", plural="jobs", categories=_ALL),
    Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs", short_names=("cj",), categories=_ALL),
    Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets", short_names=("pdb",)),
    Kind(
        group="autoscaling",
        version="v2",
        kind="HorizontalPodAutoscaler",
        plural="horizontalpodautoscalers",
        short_names=("hpa",),
        categories=_ALL,
    ),
    Kind(
        group="scheduling.k8s.io",
        version="v1",
        kind="PriorityClass",
        plural="priorityclasses",
        namespaced=False,
        short_names=("pc",),
        subresources=(),
    ),
    Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", subresources=()),
    Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles", subresources=()),
    Kind(group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings", subresources=()),
    Kind(
        group="rbac.authorization.k8s.io",
        version="v1",
        kind="ClusterRole",
        plural="clusterroles",
        namespaced=False,
        subresources=(),
    ),
    Kind(
        group="rbac.authorization.k8s.io",
        version="v1",
        kind="ClusterRoleBinding",
        plural="clusterrolebindings",
        namespaced=False,
        subresources=(),
    ),
    Kind(
        group="networking.k8s.io",
        version="v1",
        kind="Ingress",
        plural="ingresses",
        short_names=("ing",),
        subresources=(),
    ),
    Kind(
        group="networking.k8s.io",
        version="v1",
        kind="NetworkPolicy",
        plural="networkpolicies",
        short_names=("netpol",),
        subresources=(),
    ),
    Kind(
        group="storage.k8s.io",
        version="v1",
        kind="StorageClass",
        plural="storageclasses",
        namespaced=False,
        short_names=("sc",),
        subresources=(),
    ),
    Kind(
        group="admissionregistration.k8s.io",
        version="v1",
        kind="ValidatingAdmissionPolicy",
        plural="validatingadmissionpolicies",
        namespaced=False,
        subresources=(),
    ),
    Kind(
        group="admissionregistration.k8s.io",
        version="v1",
        kind="ValidatingAdmissionPolicyBinding",
        plural="validatingadmissionpolicybindings",
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
