"""A database that was restored from a backup evicts nothing until people accept that evictions are missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.commands.restore import accept_restore
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import NullProgress
from rebalancer.lab import Lab
from rebalancer.model.errors import ConfigError, UnsafeDataError
from rebalancer.policy import RebalancerPolicy
from tests.stories.scenarios.stage import (
    START,
    TURN_SECONDS,
    Stage,
    a_machine,
    a_scenario,
    burner,
    codes,
    evicted,
    service,
    stories_policy,
)


@contextmanager
def a_process(lab: Lab, folder: Path, **sections: Any) -> Iterator[Stage]:
    policy = RebalancerPolicy.model_validate(stories_policy(lab, **sections))
    settings = Settings(database=f"sqlite:///{folder / 'rebalancer.db'}", kubeconfig=str(folder / "config"))
    with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
        yield Stage(lab=lab, policy=policy, settings=settings, world=world)


def test_a_restored_database_evicts_nothing_until_it_is_accepted(tmp_path: Path) -> None:
    cluster = a_scenario(
        [a_machine("hot"), a_machine("cool"), a_machine("free")],
        [burner("burner", "hot", 5.0), service("web", {"hot": 4}, cpu=2.0), service("api", {"hot": 2}, cpu=1.5)],
    )
    database, backup = tmp_path / "rebalancer.db", tmp_path / "backup.db"
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        lab.write_kubeconfig(tmp_path / "config")
        with a_process(lab, tmp_path) as stage:
            policy, settings = stage.policy, stage.settings
        shutil.copy(database, backup)
        with a_process(lab, tmp_path) as stage:
            stage.turn()
        before = len(evicted(lab.log.entries()))
        assert before > 0
        with pytest.raises(ConfigError, match="lacks no evictions"):
            accept_restore(policy, settings)

        shutil.copy(backup, database)
        with pytest.raises(UnsafeDataError, match="db accept-restore"), a_process(lab, tmp_path):
            pass
        accepted = accept_restore(policy, settings, clock=lab.clock)
        assert (accepted.missing, accepted.had, accepted.counted) == (before, 0, ())
        assert accepted.paused_until is not None
        # the limits don't know of the missing ones
        lab.cluster.add_workload(burner("hotter", "hot", 6.0))
        with a_process(lab, tmp_path) as stage:
            assert codes(stage.turn(TURN_SECONDS)) >= {"Paused"}
        assert len(evicted(lab.log.entries())) == before


def test_evictions_that_a_restored_ledger_lacks_are_counted_again_by_their_replacements(tmp_path: Path) -> None:
    cluster = a_scenario(
        [a_machine("hot"), a_machine("cool"), a_machine("free")],
        [service("web", {"hot": 4}, cpu=2.0), service("api", {"hot": 2}, cpu=1.5)],
    )
    database, backup = tmp_path / "rebalancer.db", tmp_path / "backup.db"
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        lab.write_kubeconfig(tmp_path / "config")
        with a_process(lab, tmp_path) as stage:
            assert stage.cycle().evictions == []
            policy, settings = stage.policy, stage.settings
        shutil.copy(database, backup)
        lab.cluster.add_workload(burner("burner", "hot", 5.0))
        with a_process(lab, tmp_path) as stage:
            stage.turn()
        before = len(evicted(lab.log.entries()))
        assert before > 0
        lab.clock.sleep(TURN_SECONDS)  # commands write no Events; the replacements are there

        shutil.copy(backup, database)
        accepted = accept_restore(policy, settings, clock=lab.clock)
        assert (accepted.missing, len(accepted.counted), accepted.paused_until) == (before, before, None)
        assert {each.namespace for each in accepted.counted} == {"shop"}
        for each in accepted.counted:
            assert each.reason.startswith("counted again after a restore: ")
            assert each.reason.endswith(" is younger than the database")
        # the limit counts them, and their replacements are seen to be Ready
        lab.cluster.add_workload(burner("hotter", "hot", 6.0))
        limits = {"cluster": {"evictions": [{"max": before, "per": "1h"}]}}
        with a_process(lab, tmp_path, limits=limits) as stage:
            assert codes(stage.turn(TURN_SECONDS)) >= {"LimitCluster"}
            assert stage.world.ledger is not None
            assert stage.world.ledger.open_evictions() == []
        assert len(evicted(lab.log.entries())) == before


def test_of_more_new_pods_than_missing_evictions_none_is_counted(tmp_path: Path) -> None:
    cluster = a_scenario(
        [a_machine("hot"), a_machine("cool"), a_machine("free")],
        [service("web", {"hot": 4}, cpu=2.0), service("api", {"hot": 2}, cpu=1.5)],
    )
    database, backup = tmp_path / "rebalancer.db", tmp_path / "backup.db"
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        lab.write_kubeconfig(tmp_path / "config")
        with a_process(lab, tmp_path) as stage:
            assert stage.cycle().evictions == []
            policy, settings = stage.policy, stage.settings
        shutil.copy(database, backup)
        lab.cluster.add_workload(burner("burner", "hot", 5.0))
        with a_process(lab, tmp_path) as stage:
            stage.turn()
        lab.cluster.add_workload(service("new", {"cool": 9}, cpu=0.1, age_seconds=0.0))
        shutil.copy(backup, database)
        accepted = accept_restore(policy, settings, clock=lab.clock)
        assert accepted.missing > 0
        assert accepted.counted == ()
        assert accepted.paused_until is not None
