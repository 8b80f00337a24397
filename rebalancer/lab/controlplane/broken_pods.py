"""Containers that end by themselves, and the pod's status then."""

from rebalancer.lab.clock import timestamp
from rebalancer.lab.controlplane.pod_templates import template_of
from rebalancer.lab.loads.cpu import Breaks, behaviour_of
from rebalancer.lab.loads.history import started_at
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.scenarios.build import set_ready
from rebalancer.model.measured.history import HOUR_SECONDS

WAITING = "CrashLoopBackOff"
OOM_KILLED, OOM_EXIT_CODE = "OOMKilled", 137
FIRST_BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS = 10.0, 300.0
FORGIVEN_SECONDS = 600.0
"""After running for this long a container starts from the first back-off again (pkg/kubelet, `containerBackOff`)."""


def is_waiting(pod: Obj) -> bool:
    """Whether a container waits for its restart."""
    return any("waiting" in each["state"] for each in pod["status"].get("containerStatuses") or ())


def back_off_seconds(pod: Obj, how: Breaks | None) -> float:
    """The kubelet's back-off before it starts the containers again."""
    if how is not None and how.after_seconds >= FORGIVEN_SECONDS:
        return FIRST_BACK_OFF_SECONDS
    count = max(each["restartCount"] for each in pod["status"]["containerStatuses"])
    return float(min(LONGEST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2 ** min(count, 10)))


def out_of_memory(pod: Obj) -> tuple[float, Breaks] | None:
    """(lab time, how) of the OOM kill of a running pod that leaks and has a memory limit."""
    model = behaviour_of(pod).memory
    started, limits = started_at(pod), template_of({}, pod["spec"]).memory_limits
    if model is None or started is None or not limits:
        return None
    seconds = max(sum(limits) - model.base_bytes, 0.0) / model.growth_bytes_per_hour * HOUR_SECONDS
    return started + seconds, Breaks(after_seconds=seconds, exit_code=OOM_EXIT_CODE, reason=OOM_KILLED)


def break_down(pod: Obj, how: Breaks, now: float) -> None:
    """Its containers have ended and wait for their restart. Changes `pod`."""
    for each in pod["status"]["containerStatuses"]:
        each["state"] = {"waiting": {"reason": WAITING, "message": "back-off restarting failed container"}}
        each["lastState"] = _terminated(how, now)
        each["started"] = False
    set_ready(pod, now, ready=False)


def restart(pod: Obj, now: float) -> None:
    """Its containers run again, not Ready yet. Changes `pod`."""
    for each in pod["status"]["containerStatuses"]:
        each["restartCount"] += 1
        each["state"] = {"running": {"startedAt": timestamp(now)}}
        each["started"] = True


def fail(pod: Obj, how: Breaks, now: float) -> None:
    """The pod has failed: it is finished, and is not started again. Changes `pod`."""
    status = pod["status"]
    status["phase"] = "Failed"
    if how.pod_reason:
        status["reason"] = how.pod_reason
    for each in status.get("containerStatuses") or ():
        each["state"] = _terminated(how, now)
        each["started"] = False
    set_ready(pod, now, ready=False)


def _terminated(how: Breaks, now: float) -> Obj:
    return {"terminated": {"exitCode": how.exit_code, "reason": how.reason, "finishedAt": timestamp(now)}}
