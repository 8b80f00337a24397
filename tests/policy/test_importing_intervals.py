"""Limits per run of a descheduler that runs rarely hold for as long as its interval."""

import pytest

from rebalancer.policy import load_policy
from rebalancer.policy.descheduler.importer import Imported, import_policy
from rebalancer.policy.descheduler.intervals import go_seconds, shortest_gap
from rebalancer.policy.descheduler.manifests import only_policy_in

POLICY = """\
deschedulerPolicy:
  maxNoOfPodsToEvictPerNamespace: 1
  profiles:
    - pluginConfig: [{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 604800}}]
      plugins: {deschedule: {enabled: [PodLifeTime]}}
"""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def of(values: str) -> Imported:
    found = only_policy_in((values + POLICY).encode(), source="f.yaml")
    return import_policy(found.data, source="f.yaml", interval=found.interval)


@pytest.mark.parametrize(
    ("values", "per"),
    [
        ("", 5 * MINUTE),  # the chart's CronJob runs each two minutes
        ("kind: CronJob\nschedule: 0 4 * * *\n", DAY),
        ("schedule: 0 4 1 * *\n", 28 * DAY),
        ("schedule: '@hourly'\ndeschedulingInterval: 1m\n", HOUR),
        ("kind: Deployment\n", 5 * MINUTE),
        ("kind: Deployment\ndeschedulingInterval: 1m\n", 5 * MINUTE),
        ("kind: Deployment\ndeschedulingInterval: 1h30m\nschedule: 0 4 * * *\n", 1.5 * HOUR),
    ],
)
def test_a_limit_of_a_run_holds_for_the_interval_of_the_values(values: str, per: float) -> None:
    made = of(values)
    ours = load_policy(made.text.encode(), source="ours.yaml")
    assert [(each.max, each.per) for each in ours.limits.namespace.evictions] == [(1, per)]
    assert "limits" not in [each.ours for each in made.differences if each.kind == "decide"]


@pytest.mark.parametrize("values", ["schedule: sometimes\n", "kind: Deployment\ndeschedulingInterval: often\n"])
def test_an_interval_that_is_not_known_is_for_a_person_to_decide(values: str) -> None:
    made = of(values)
    (decision,) = [each for each in made.differences if each.kind == "decide" and each.ours == "limits"]
    assert decision.why == "`per` must be the descheduler's interval, if it is longer than 5m: it is not in the policy"
    assert "# DECIDE: `per` must be the descheduler's interval, if it is longer than 5m.\nlimits:\n" in made.text


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        ("*/2 * * * *", 2 * MINUTE),
        ("*/25 * * * *", 10 * MINUTE),  # at 50 and at the next full hour
        ("20 * * * *", HOUR),
        ("0 */6 * * *", 6 * HOUR),
        ("0 8-17 * * mon-fri", HOUR),
        ("17 7 * * *", DAY),
        ("0 4 * * 0", 7 * DAY),
        ("0 4 * * sun,7", 7 * DAY),
        ("0 23,1 * * *", 2 * HOUR),
        ("0 0 1 * *", 28 * DAY),
        ("0 0 1 * 1", DAY),  # of a day and a weekday, either is enough
        ("0 0 29 2 *", 1461 * DAY),
        ("@weekly", 7 * DAY),
    ],
)
def test_the_two_closest_runs_of_a_schedule_count(schedule: str, gap: float) -> None:
    assert shortest_gap(schedule) == gap


@pytest.mark.parametrize(
    "schedule", ["", "0 4 * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "x * * * *", "0 0 31 2 *"]
)
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"expected|invalid literal"):
        shortest_gap(schedule)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("1h30m", 5400.0), ("1.5s", 1.5)])
def test_durations_of_go_are_read(text: str, seconds: float) -> None:
    assert go_seconds(text) == seconds
