"""`rebalancer db prune` and the details: what people see of it."""

import time
from pathlib import Path

from rebalancer.store import open_records, upgrade
from tests.programs.cli import Result, rebalancer
from tests.store.builders import CLUSTER, SteppingClock, build_eviction, build_finding, build_line, build_report
from tests.store.readers import cycles
from tests.store.test_effect import an_episode

DAY = 86_400.0


def test_old_details_are_counted_by_table_and_dropped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    clock = SteppingClock(at=time.time() - 40 * DAY)
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        for cycle in ("evicted", "idle"):
            nodes, found = [build_line(hot=True, high=0.8)], [(build_finding(), "n1")]
            report = build_report(cycle=cycle, started_at=clock.at, nodes=nodes, findings=found)
            records.begin(report)
            if cycle == "evicted":
                records.planned(report, build_eviction())
            records.finish(report)
        records.effect().put_episodes([an_episode(started_at=clock.at, ended_at=clock.at + 60)])

        def prune(*flags: str) -> Result:
            return rebalancer("db", "prune", *flags, cwd=tmp_path)

        # how long details are kept is not published: only what was looked at is thinned out
        assert prune("--dry-run", "-o", "json").document["details"] == {"node_measurements": 2}
        old = {"cycles": 1, "findings": 2, "hot_episodes": 1, "node_measurements": 2, "cycle_nodes": 2}
        output = prune("--dry-run", "--older-than", "39d").err
        assert "would drop 0 entries" in output
        assert all(f"{count} {table}" in output for table, count in old.items())
        assert prune("--older-than", "39d", "-o", "json").document["details"] == old
        assert "dropped 0 entries" in (done := prune("--older-than", "39d").err)
        assert done.endswith("; details: none\n")
        assert [cycle["id"] for cycle in cycles(records, 5)] == ["evicted"]
