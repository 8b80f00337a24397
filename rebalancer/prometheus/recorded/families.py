"""Metrics of kube-state-metrics that have a series for each object, and what is asked of them.

Source: https://github.com/kubernetes/kube-state-metrics/tree/main/docs
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rebalancer.prometheus.recorded.windows import Window

POD_INFO = "kube_pod_info"
POD = ("namespace", "pod", "uid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric with one series for each object, whose series come and go with them."""

    metric: str
    key: tuple[str, ...]
    by: tuple[str, ...]
    matchers: tuple[str, ...] = ()
    first: bool = False
    """The smallest value counts, instead of the last."""
    condition: str = ""
    """Comparison that its values must pass."""
    summed: tuple[str, ...] = ()
    """Labels of the sums of these values; empty: they are not summed."""

    def selector(self, *matchers: str) -> str:
        """Its series, restricted by further matchers (PromQL)."""
        inside = ",".join((*self.matchers, *matchers))
        return f"{self.metric}{{{inside}}}" if inside else self.metric

    def at_start(self, *matchers: str) -> str:
        """What there is at one moment."""
        return self._joined(self.selector(*matchers) + self.condition)

    def new(self, window: Window, *matchers: str) -> str:
        """What the end of a window has, and its beginning hasn't."""
        selector = self.selector(*matchers)
        before = f"({selector} offset {window.promql}{self.condition})"
        return self._joined(f"{selector}{self.condition} unless on ({', '.join(self.key)}) {before}")

    def within(self, window: Window, *matchers: str) -> str:
        """What there was at any time of a window."""
        over = "min_over_time" if self.first else "max_over_time" if self.condition else "last_over_time"
        return self._joined(f"{over}({self.selector(*matchers)}[{window.promql}]){self.condition}")

    def _joined(self, series: str) -> str:
        """One series for each object: kube-state-metrics itself may have been replaced meanwhile."""
        one = f"{'min' if self.first else 'max'} by ({', '.join(self.by)}) ({series})"
        return f"sum by ({', '.join(self.summed)}) ({one})" if self.summed else one


PODS = Family(
    metric=POD_INFO, key=(*POD, "node"), by=(*POD, "node", "created_by_kind", "created_by_name", "priority_class")
)
POD_TIMES: Mapping[str, Family] = {
    "created": Family(metric="kube_pod_created", key=POD, by=POD),
    "scheduled": Family(metric="kube_pod_status_scheduled_time", key=POD, by=POD),
    "started": Family(metric="kube_pod_start_time", key=POD, by=POD),
    "ready": Family(metric="kube_pod_status_ready_time", key=POD, by=POD, first=True),
}
"""Time of a `PodHistory` -> its metric."""
COMPLETED = Family(metric="kube_pod_completion_time", key=POD, by=POD)
FINISHED = Family(
    metric="kube_pod_status_phase", key=POD, by=POD, matchers=('phase=~"Succeeded|Failed"',), condition=" == 1"
)
REQUESTS = Family(
    metric="kube_pod_container_resource_requests",
    key=POD,
    by=(*POD, "container", "resource"),
    matchers=('resource=~"cpu|memory"',),
    summed=(*POD, "resource"),
)
OWNERS: Mapping[str, Family] = {
    kind: Family(
        metric=metric,
        key=("namespace", name),
        by=("namespace", name, "owner_kind", "owner_name"),
        matchers=('owner_name!=""', 'owner_name!="<none>"'),
    )
    for kind, metric, name in (
        ("ReplicaSet", "kube_replicaset_owner", "replicaset"),
        ("Job", "kube_job_owner", "job_name"),
    )
}
"""Kind -> its objects' controllers."""
