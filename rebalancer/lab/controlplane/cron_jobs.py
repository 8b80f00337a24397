"""The CronJob controller: a Job at every time of the schedule, and only the newest finished ones are kept.

Not modelled: concurrency policies (Allow), starting deadlines, time zones (UTC).
"""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from rebalancer.lab.controlplane.owned import controller_of
from rebalancer.lab.log import Entry, EventLog
from rebalancer.lab.objects.disruption import is_finished
from rebalancer.lab.objects.kinds import Obj
from rebalancer.lab.objects.store import Store
from rebalancer.lab.scenarios.build import owner_reference
from rebalancer.model.notation.schedules import NAMED

KEPT_JOBS = 3
"""`successfulJobsHistoryLimit`."""
MINUTE_SECONDS = 60.0


class CronJobs:
    """All CronJobs that are not suspended."""

    def __init__(self, *, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log
        self._due: dict[str, float] = {}
        """CronJob uid -> lab time of its next Job."""

    def next_due(self) -> float | None:
        """Lab time of the next Job, None without CronJobs."""
        return min(self._due.values(), default=None)

    def run(self, now: float) -> None:
        """Create the Jobs that are due. The caller holds the lock."""
        due: dict[str, float] = {}
        for cron in self._store.sorted("cronjobs"):
            if cron["spec"].get("suspend"):
                continue
            uid, schedule = cron["metadata"]["uid"], cron["spec"]["schedule"]
            at = self._due.get(uid)
            if at is not None and at <= now:
                self._start(cron, at)
                self._forget_old(cron)
                at = None
            due[uid] = next_time(schedule, now) if at is None else at
        self._due = due

    def _start(self, cron: Obj, at: float) -> None:
        meta = cron["metadata"]
        name = f"{meta['name']}-{int(at // MINUTE_SECONDS)}"
        job = {
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": dict(meta.get("labels") or {}),
                "ownerReferences": [owner_reference(cron)],
            },
            "spec": cron["spec"]["jobTemplate"]["spec"],
        }
        self._store.create("jobs", job)
        self._log.add(Entry(event="scheduled", at=self._store.clock.now(), namespace=meta["namespace"], name=name))

    def _forget_old(self, cron: Obj) -> None:
        ended = [
            job
            for job in self._store.sorted("jobs")
            if (controller_of(job) or {}).get("uid") == cron["metadata"]["uid"]
            and any(each["status"] == "True" for each in (job.get("status") or {}).get("conditions") or ())
        ]
        ended.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]))
        uids = {job["metadata"]["uid"] for job in ended[:-KEPT_JOBS]}
        for pod in self._store.sorted("pods") if uids else ():
            if is_finished(pod) and (controller_of(pod) or {}).get("uid") in uids:
                self._store.remove("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        for job in ended[:-KEPT_JOBS]:
            self._store.remove("jobs", job["metadata"]["namespace"], job["metadata"]["name"])


def next_time(schedule: str, after: float) -> float:
    """The first time after `after` (seconds since the epoch) that a schedule names. Raises ValueError."""
    five = NAMED.get(schedule, schedule)
    try:
        return next(CronSim(five, datetime.fromtimestamp(after, UTC))).timestamp()
    except (CronSimError, StopIteration):
        raise ValueError(f"{schedule!r}: expected five fields of cron, or one of {', '.join(NAMED)}") from None
