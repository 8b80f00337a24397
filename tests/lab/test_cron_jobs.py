"""CronJobs create Jobs by their schedule."""

from collections.abc import Callable

import pytest

from rebalancer.lab import Lab, workload
from rebalancer.lab.controlplane.cron_jobs import next_time
from tests.lab.conftest import three_nodes

Start = Callable[..., Lab]

MIDNIGHT = 1_790_035_200.0


@pytest.mark.parametrize(
    ("schedule", "minutes", "due"),
    [
        ("*/15 * * * *", 0, 15),
        ("*/15 * * * *", 14.99, 15),
        ("5 * * * *", 5, 65),
        ("0,30 2 * * *", 0, 120),
        ("@hourly", 0, 60),
        ("0 0 23 * *", 0, 24 * 60),
        ("0,30 2 * * *", 121, 150),
        ("0 0 * * *", 0, 1440),
    ],
)
def test_the_next_time_of_a_schedule_is_the_first_minute_after_now(schedule: str, minutes: float, due: float) -> None:
    assert next_time(schedule, MIDNIGHT + minutes * 60) == MIDNIGHT + due * 60


def test_a_schedule_that_is_none_is_refused() -> None:
    for schedule in ("0 0 1 *", "@now", "61 * * * *"):
        with pytest.raises(ValueError, match="expected five fields"):
            next_time(schedule, MIDNIGHT)


def test_each_time_makes_a_job_that_finishes_and_three_are_kept(start: Start) -> None:
    report = workload("report", namespace="batch", kind="CronJob", schedule="*/10 * * * *", run_seconds=120.0)
    lab = start(three_nodes(report), stepped=True, start_time=MIDNIGHT)
    assert lab.cluster.pods() == []
    lab.clock.sleep(620.0)
    assert [pod["status"]["phase"] for pod in lab.cluster.pods()] == ["Running"]
    lab.clock.sleep(230.0)
    assert [pod["status"]["phase"] for pod in lab.cluster.pods()] == ["Succeeded"]
    lab.clock.sleep(3600.0)
    assert len(lab.log.entries("scheduled")) == 7
    jobs = lab.cluster.store.sorted("jobs")
    assert len(jobs) == len(lab.cluster.pods()) == 4  # the next one has not ended when the oldest is removed
    assert all(job["status"]["conditions"][0]["type"] == "Complete" for job in jobs)
    cron = lab.cluster.store.get("cronjobs", "batch", "report")
    assert {job["metadata"]["ownerReferences"][0]["uid"] for job in jobs} == {cron["metadata"]["uid"]}


def test_a_cron_job_without_a_schedule_is_suspended(start: Start) -> None:
    lab = start(three_nodes(workload("old", kind="CronJob", place={"a": 1})), stepped=True)
    assert lab.cluster.store.sorted("cronjobs")[0]["spec"]["suspend"] is True
    lab.clock.sleep(7200.0)
    assert len(lab.cluster.store.sorted("jobs")) == 1
