"""A daemon whose plan waits: the next move goes when the replacement is Ready, and a wait ends with the daemon."""

import signal
import time
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab
from tests.e2e.servers import ALERT, alert_policy, evicted, held_by, leading, tainted, until, warm_lab

ONE_IN_FLIGHT = {"service": {"inFlight": 1}}
POLL_SECONDS = 5.0
"""Between two looks for replacements."""


def a_policy(lab: Lab) -> dict[str, Any]:
    """Two pods of one service must leave a node, one after the other; no period comes meanwhile."""
    strategies = [{"name": "LowNodeUtilization", "interval": "1h"}]
    alerts = {"rules": [{"alert": ALERT}], "minTarget": 30, "maxExcess": 40}
    return alert_policy(lab.prometheus_url, limits=ONE_IN_FLIGHT, strategies=strategies, alerts=alerts)


def test_the_next_move_of_a_plan_goes_when_the_replacement_is_ready(tmp_path: Path) -> None:
    with warm_lab(warm=1) as lab, leading(tmp_path, lab, a_policy(lab)) as running:
        began = lab.clock.now()
        running.alert("warm-1", target=30.0)
        until(lambda: len(evicted(lab, "warm-1")) == 2, running.tail)
        [ready] = [each.at for each in lab.log.entries("ready") if each.at > began]
        assert ready <= evicted(lab, "warm-1")[1].at <= ready + POLL_SECONDS + 2.0
        until(lambda: any(each["evicted"] for each in running.events("cycle")), running.tail)
        assert [each["evicted"] for each in running.events("cycle") if each["evicted"]] == [2]


def test_a_daemon_that_is_stopped_while_its_plan_waits_ends_in_good_order(tmp_path: Path) -> None:
    with warm_lab(warm=1, start_seconds=60.0) as lab:
        with leading(tmp_path, lab, a_policy(lab), lease="waits") as running:
            running.alert("warm-1", target=30.0)
            until(lambda: evicted(lab, "warm-1"), running.tail)
            time.sleep(2.0)
            assert not any(each["evicted"] for each in running.events("cycle"))  # it waits
            assert running.get("/livez")[0] == 200
            running.signal(signal.SIGTERM)
            assert running.ended(10.0) == 0
        assert len(evicted(lab, "warm-1")) == 1
        assert held_by(lab, "waits") == ("", 1)
        assert tainted(lab) == set()
