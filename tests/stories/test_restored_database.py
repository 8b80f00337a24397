"""A database that was restored from a backup evicts nothing until people accept that evictions are missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rebalancer.bootstrap.commands.restore import AcceptedRestore, accept_restore
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.lab import Lab
from rebalancer.model.errors import ConfigError, UnsafeDataError
from rebalancer.policy import RebalancerPolicy
from tests.stories.readers import Log
from tests.stories.scenarios.stage import START, TURN_SECONDS, a_run, a_scenario, burner, codes, service

SERVICES = (service("web", {"hot": 4}, cpu=2.0), service("api", {"hot": 2}, cpu=1.5))
LOAD = burner("burner", "hot", 5.0)


@dataclass(frozen=True, kw_only=True)
class Backup:
    """A lab, and the database of a process that has ended; its backup is older than the evictions."""

    lab: Lab
    folder: Path
    policy: RebalancerPolicy
    settings: Settings
    evictions: int

    def restore(self) -> None:
        shutil.copy(self.folder / "backup.db", self.folder / "rebalancer.db")

    def accept(self) -> AcceptedRestore:
        return accept_restore(self.policy, self.settings, clock=self.lab.clock)


@contextmanager
def evicted_after_the_backup(folder: Path, *, hot_at_once: bool = False) -> Iterator[Backup]:
    """The node is hot `at once`, or from the backup on."""
    cluster = a_scenario(("hot", "cool", "free"), *([LOAD] if hot_at_once else []), *SERVICES)
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        with a_run(lab, folder) as stage:
            if not hot_at_once:
                assert stage.cycle().evictions == []
            policy, settings = stage.policy, stage.settings
        shutil.copy(folder / "rebalancer.db", folder / "backup.db")
        if not hot_at_once:
            lab.cluster.add_workload(LOAD)
        with a_run(lab, folder) as stage:
            stage.turn()
        evictions = len(Log.of(lab).evicted)
        assert evictions > 0
        yield Backup(lab=lab, folder=folder, policy=policy, settings=settings, evictions=evictions)


def test_a_restored_database_evicts_nothing_until_it_is_accepted(tmp_path: Path) -> None:
    with evicted_after_the_backup(tmp_path, hot_at_once=True) as backup:
        lab = backup.lab
        with pytest.raises(ConfigError, match="lacks no evictions"):
            accept_restore(backup.policy, backup.settings)

        backup.restore()
        with pytest.raises(UnsafeDataError, match="db accept-restore"), a_run(lab, tmp_path):
            pass
        accepted = backup.accept()
        assert (accepted.missing, accepted.had, accepted.counted) == (backup.evictions, 0, ())
        assert accepted.paused_until is not None
        # the limits don't know of the missing ones
        lab.cluster.add_workload(burner("hotter", "hot", 6.0))
        with a_run(lab, tmp_path) as stage:
            assert codes(stage.turn(TURN_SECONDS)) >= {"Paused"}
        assert len(Log.of(lab).evicted) == backup.evictions


def test_evictions_that_a_restored_ledger_lacks_are_counted_again_by_their_replacements(tmp_path: Path) -> None:
    with evicted_after_the_backup(tmp_path) as backup:
        lab, before = backup.lab, backup.evictions
        lab.clock.sleep(TURN_SECONDS)  # commands write no Events; the replacements are there

        backup.restore()
        accepted = backup.accept()
        assert (accepted.missing, len(accepted.counted), accepted.paused_until) == (before, before, None)
        assert {each.namespace for each in accepted.counted} == {"shop"}
        for each in accepted.counted:
            assert each.reason.startswith("counted again after a restore: ")
            assert each.reason.endswith(" is younger than the database")
        # the limit counts them, and their replacements are seen to be Ready
        lab.cluster.add_workload(burner("hotter", "hot", 6.0))
        limits = {"cluster": {"evictions": [{"max": before, "per": "1h"}]}}
        with a_run(lab, tmp_path, limits=limits) as stage:
            assert codes(stage.turn(TURN_SECONDS)) >= {"LimitCluster"}
            assert stage.ledger.open_evictions() == []
        assert len(Log.of(lab).evicted) == before


def test_of_more_new_pods_than_missing_evictions_none_is_counted(tmp_path: Path) -> None:
    with evicted_after_the_backup(tmp_path) as backup:
        backup.lab.cluster.add_workload(service("new", {"cool": 9}, cpu=0.1, age_seconds=0.0))
        backup.restore()
        accepted = backup.accept()
        assert accepted.missing > 0
        assert accepted.counted == ()
        assert accepted.paused_until is not None
