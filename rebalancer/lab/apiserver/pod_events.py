"""Events of pods, as scheduler and kubelets report them: made from the lab's log when they are listed.

A watch has only stored events, those that clients create.
"""

from rebalancer.lab.clock import timestamp
from rebalancer.lab.log import Entry
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.serving import ServedLab

KEPT_SECONDS = 3600.0
"""As the API server's own: events older than an hour are gone."""

_REPORTS = {
    "bound": ("Normal", "Scheduled", "default-scheduler", "Successfully assigned {namespace}/{name} to {node}"),
    "pulled": ("Normal", "Pulled", "kubelet", "Successfully pulled image {detail}"),
    "started": ("Normal", "Started", "kubelet", "Started containers"),
    "terminating": ("Normal", "Killing", "kubelet", "Stopping containers"),
    "broken": ("Warning", "BackOff", "kubelet", "Back-off restarting failed containers"),
    "failed": ("Warning", "Failed", "kubelet", "Pod failed {detail}"),
}
"""Entry of the log -> type, reason, component and message."""


def of_pods(lab: ServedLab) -> list[Obj]:
    """The events of the last hour, oldest first."""
    since = lab.clock.now() - KEPT_SECONDS
    return [
        _event(number, entry)
        for number, entry in enumerate(lab.log.entries())
        if entry.event in _REPORTS and entry.at >= since and entry.uid
    ]


def _event(number: int, entry: Entry) -> Obj:
    type_, reason, component, message = _REPORTS[entry.event]
    at = timestamp(entry.at)
    parts = {"namespace": entry.namespace, "name": entry.name, "node": entry.node, "detail": entry.detail}
    return {
        "metadata": {
            "name": f"{entry.name}.{number:x}",
            "namespace": entry.namespace,
            "uid": f"{entry.uid}-{number:x}",
            "creationTimestamp": at,
            "resourceVersion": "1",
        },
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": entry.namespace,
            "name": entry.name,
            "uid": entry.uid,
        },
        "type": type_,
        "reason": reason,
        "message": message.format(**parts).strip(),
        "source": {"component": component, **({"host": entry.node} if component == "kubelet" else {})},
        "reportingComponent": component,
        "reportingInstance": entry.node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
