"""A database that was restored from a backup evicts nothing until people accept that evictions are missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rebalancer.bootstrap.contexts import accept_restore, acting_context
from rebalancer.bootstrap.settings import Settings
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
def a_process(lab: Lab, folder: Path) -> Iterator[Stage]:
    policy = RebalancerPolicy.model_validate(stories_policy(lab))
    settings = Settings(database=f"sqlite:///{folder / 'rebalancer.db'}", kubeconfig=str(folder / "config"))
    with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
        yield Stage(lab=lab, policy=policy, settings=settings, world=world)


def test_17_1_a_restored_database_evicts_nothing_until_it_is_accepted(tmp_path: Path) -> None:
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
        missing, had, _ = accept_restore(policy, settings)
        assert (missing, had) == (before, 0)
        # the limits don't know of the missing ones
        lab.cluster.add_workload(burner("hotter", "hot", 6.0))
        with a_process(lab, tmp_path) as stage:
            assert codes(stage.turn(TURN_SECONDS)) >= {"Paused"}
        assert len(evicted(lab.log.entries())) == before
