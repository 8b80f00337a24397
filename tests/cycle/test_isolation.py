"""Errors in parts that the rest doesn't depend on are notes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import ForecastReaders, NullProgress
from rebalancer.cycle.isolation import isolated
from rebalancer.cycle.run import run_cycle
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.lab import Lab
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import ConnectError
from rebalancer.policy import RebalancerPolicy
from tests.stories.scenarios.stage import START, a_machine, a_scenario, service, stories_policy


def leaks_that_raise(_: ClusterSnapshot, __: float) -> Sequence[MemoryLeak]:
    raise ValueError("year 24186 is out of range")


def test_memory_leaks_that_raise_do_not_end_a_cycle(tmp_path: Path) -> None:
    with Lab.start(a_scenario([a_machine("a")], service("web", {"a": 1})), stepped=True, start_time=START) as lab:
        policy = RebalancerPolicy.model_validate(stories_policy(lab))
        settings = Settings(
            database=f"sqlite:///{tmp_path / 'rebalancer.db'}",
            kubeconfig=str(lab.write_kubeconfig(tmp_path / "config")),
        )
        with acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as world:
            report = run_cycle(
                replace(world, forecasts=ForecastReaders(memory_leaks=leaks_that_raise)), policy, dry_run=False
            ).report
    assert report.finished_at is not None
    assert "memory leaks are not known: ValueError: year 24186 is out of range" in report.notes


def test_only_defects_are_logged_with_their_trace(caplog: pytest.LogCaptureFixture) -> None:
    def offline() -> int:
        raise ConnectError("Prometheus does not answer")

    assert isolated("no days", lambda: 1) == (1, ())
    assert isolated("no days", offline) == (None, ("no days: Prometheus does not answer",))
    assert caplog.text == ""
    assert isolated("no days", lambda: int("one")) == (
        None,
        ("no days: ValueError: invalid literal for int() with base 10: 'one'",),
    )
    assert "Traceback" in caplog.text
