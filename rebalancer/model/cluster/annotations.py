"""Annotations of pods that decisions read.

Readers of the cluster keep these and drop all others, before any policy is known: a guard on an annotation that is
missing here would never refuse.
"""

import re
from collections.abc import Mapping
from math import inf
from typing import Final

from rebalancer.model.cluster.autoscaling import VPA_UPDATES

OWN_PREFIX: Final = "rebalancer.dev/"
"""Every annotation with it is kept: a policy may name one."""

OPT: Final = f"{OWN_PREFIX}evict"
"""Annotation and label: whether the pod may be evicted."""

EVICT_JOB: Final = f"{OWN_PREFIX}evict-job"
"""Annotation: whether this pod of a Job may be evicted, although the policy's other Job pods may not, because the Job
continues from a checkpoint."""

MIRROR: Final = "kubernetes.io/config.mirror"
SOURCE: Final = "kubernetes.io/config.source"

FOR_A_TIME: Final = "karpenter.sh/do-not-disrupt"
"""A duration as its value protects a pod for so long from its start. Source: karpenter 1.12, kubernetes-sigs/karpenter
pull request 2874."""
MOST_CHARS: Final = 64
"""Of a duration."""

VETOES: Final[Mapping[str, bool]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": False,
    "descheduler.alpha.kubernetes.io/evict": False,
    "descheduler.alpha.kubernetes.io/prefer-no-eviction": True,
    FOR_A_TIME: True,
    "karpenter.sh/do-not-evict": True,
}
"""Annotation -> the flag that forbids an eviction. A value that is neither true nor false forbids it too."""

REQUEST_EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
"""Its presence: another component carries out the eviction after the request, as KubeVirt does by a live migration.
Only the Eviction API's adapter reads it, right before the call."""
EVICTION_IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Its presence: that component is carrying out an eviction; it removes the annotation when that failed."""

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Of two Ready pods a ReplicaSet that is scaled down removes the one with the lower cost; 0 without the annotation."""
LOWEST_COST: Final = str(-(2**31))
"""What replacement first writes there: no other pod's is lower."""

KEPT: Final = frozenset({MIRROR, SOURCE, *VETOES, EVICTION_IN_PROGRESS, VPA_UPDATES, DELETION_COST})


def is_kept(key: str) -> bool:
    """Whether a snapshot holds this annotation of pods."""
    return key in KEPT or key.startswith(OWN_PREFIX)


def run_by_kubelet(annotations: Mapping[str, str]) -> bool:
    """Whether these are of a mirror pod or a static pod."""
    return MIRROR in annotations or annotations.get(SOURCE, "api") != "api"


_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def parse_flag(value: str) -> bool | None:
    """A boolean as Go's `strconv.ParseBool` reads it; None for any other text."""
    return True if value in _TRUE else False if value in _FALSE else None


def vetoed_by(annotations: Mapping[str, str], *, age: float = 0.0) -> str | None:
    """The annotation among VETOES that forbids the eviction of a pod that started `age` seconds ago, or None."""
    return next(
        (
            key
            for key, forbids in VETOES.items()
            if (value := annotations.get(key)) is not None
            and parse_flag(value) in (forbids, None)
            and not (key == FOR_A_TIME and protected_for(value) <= age)
        ),
        None,
    )


_GO_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|m|s|ms|us|µs|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def protected_for(value: str) -> float:
    """Seconds from a pod's start for which a value of FOR_A_TIME protects it, as Go's `time.ParseDuration` reads them;
    inf for any other text."""
    parts = _GO_DURATION.findall(value)
    if not parts or len(value) > MOST_CHARS or "".join(number + unit for number, unit in parts) != value:
        return inf
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def opts_out(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a pod with these says that it must not be evicted, or that its eviction is in progress."""
    flags = [parse_flag(found[OPT]) for found in (annotations, labels) if OPT in found]
    return not all(flags) or vetoed_by(annotations) is not None or EVICTION_IN_PROGRESS in annotations
