"""The journal of a lab day: what it says of pods and evictions is what the lab counted."""

from pathlib import Path

import numpy as np

from rebalancer.bootstrap.journal import journal_covers, recording_from_journal
from rebalancer.daemon.journaling import JournalWriter
from rebalancer.model.alerts import AlertEpisode
from rebalancer.model.history import STEP_SECONDS
from rebalancer.store import DayJournal
from tests.stories.scenarios.stage import TURN_SECONDS, a_machine, a_scenario, a_stage, burner, moves, service


class NoAlerts:
    def open_episodes(self) -> list[AlertEpisode]:
        return []


def test_22_2_evictions_and_replacements_of_the_journal_are_those_of_the_lab(tmp_path: Path) -> None:
    scenario = a_scenario(
        [a_machine("hot"), a_machine("cool"), a_machine("free")],
        [burner("burner", "hot", 6.0), *(service(f"web-{at}", {"hot": 2}, cpu=0.8) for at in range(6))],
    )
    with a_stage(scenario, tmp_path) as stage:
        stage.settings.history_dir = str(tmp_path / "history")
        assert stage.world.ledger is not None
        writer = JournalWriter(
            DayJournal(tmp_path / "history", cluster="test"),
            ledger=stage.world.ledger,
            inbox=NoAlerts(),
            snapshot=stage.world.cluster.snapshot,
            leads=lambda: True,
            clock=stage.lab.clock,
        )
        start = stage.lab.clock.now()
        start -= start % STEP_SECONDS
        for _ in range(8):
            stage.turn()
            assert writer.turn(done=True)
        today, end = stage.world.cluster.snapshot(), stage.lab.clock.now() + STEP_SECONDS
        assert journal_covers(stage.policy, stage.settings, start=start, end=end)
        recording = recording_from_journal(
            stage.policy, stage.settings, start=start, end=end, snapshot_today=today, clock=stage.lab.clock
        )
        moved = moves(stage.lab.log.entries())
    pods = recording.pods
    row_of = {uid: row for row, uid in enumerate(pods.uids)}
    chained = {
        (pods.uids[before], pods.uids[after]) for after, before in enumerate(pods.replaced.tolist()) if before >= 0
    }
    assert len(moved) > 3
    assert chained == {(each.uid, each.new_uid) for each in moved}
    for each in moved:
        gone, came = row_of[each.uid], row_of[each.new_uid]
        assert recording.nodes.names[pods.node[gone]] == each.source
        assert recording.nodes.names[pods.node[came]] == each.target
        assert abs(pods.ended[gone] - each.at) <= TURN_SECONDS
        assert each.ready_at is not None
        assert abs(pods.ready[came] - each.ready_at) <= 1.0
        assert pods.bound[came] <= each.ready_at
    assert recording.owners[pods.owner[row_of[moved[0].uid]]].kind == "ReplicaSet"
    there = np.isfinite(pods.bound) & (pods.ended == np.inf)
    assert sorted(np.array(pods.names)[there]) == sorted(today.pods.names)
