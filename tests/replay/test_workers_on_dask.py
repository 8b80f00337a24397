"""Replays on a Dask cluster."""

import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.replays.cluster import make
from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import ReplayRun
from rebalancer.replay.runner import dask_cluster
from rebalancer.replay.runner.workers import open_workers
from tests.replay.test_workers import Steps, alone, assert_same, jobs, recording, run_jobs
from tests.web.test_server import certificate

__all__ = ["alone", "recording"]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a Dask scheduler with two workers on loopback."""
    distributed = pytest.importorskip("distributed", reason="the extra distributed is not installed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        silence_logs=50,
    ) as cluster:
        yield cluster.scheduler_address


def test_two_workers_of_a_dask_cluster_give_the_same_runs(
    recording: Recording, alone: list[ReplayRun | None], scheduler: str
) -> None:
    steps = Steps()
    with open_workers(scheduler=scheduler) as cluster:
        together = run_jobs(jobs(), recording, executor=cluster, progress=steps)
    for expected, run in zip(alone, together, strict=True):
        assert_same(run, expected)
    assert steps.last == {"without rebalancer": (2, 2), "a policy": (2, 2)}


class Deserted:
    """A connected client of a Dask scheduler that all workers have left."""

    def subscribe_topic(self, name: str, handler: Any) -> None:
        """Nothing is ever sent."""

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": {}}


def test_a_dask_cluster_without_workers_is_waited_for_a_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "MESSAGE_SECONDS", 0.0)
    channel = dask_cluster.DaskChannel("a replay", Deserted(), 2)
    assert channel.fractions() == [0.0, 0.0]
    monkeypatch.setattr(dask_cluster, "WITHOUT_WORKERS_SECONDS", 0.0)
    with pytest.raises(ConnectError, match=r"^the Dask scheduler has had no workers for 0 s: the replay ends"):
        channel.fractions()


def test_an_order_to_stop_reaches_the_workers_of_a_dask_cluster(scheduler: str) -> None:
    days = make(10, 120, 4, 3)
    steps = Steps()
    with open_workers(scheduler=scheduler) as cluster:
        (run,) = run_jobs(jobs()[1:], days, executor=cluster, progress=steps, stopping=lambda: bool(steps.last))
    assert run is not None
    assert days.start < run.until < days.end


def test_an_error_of_a_run_on_a_dask_cluster_is_raised_in_one_line(recording: Recording, scheduler: str) -> None:
    broken = replace(recording, usage={})
    with (
        open_workers(scheduler=scheduler) as cluster,
        pytest.raises(RebalancerError, match=r"^the run a policy failed: KeyError"),
    ):
        run_jobs(jobs()[1:], broken, executor=cluster)


def test_a_scheduler_that_does_not_answer_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra distributed is not installed")
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with (
            pytest.raises(ConnectError, match=f"^--dask {address}: no Dask scheduler answers: "),
            open_workers(scheduler=address),
        ):
            pass


@pytest.mark.parametrize(
    "address",
    ["tcp://10.0.0.1:8786", "tcp://dask.example:8786", "tcp://[fe80::1]:8786", "tcp://127.0.0.1.example:8786"],
)
def test_a_scheduler_elsewhere_without_tls_is_refused_before_anything_is_sent(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_connection", pytest.fail)
    with (
        pytest.raises(
            ConfigError, match=rf"^--dask {re.escape(address)}: a scheduler without TLS asks for no credential"
        ),
        open_workers(scheduler=address),
    ):
        pass


@pytest.mark.parametrize(
    "address", ["ws://127.0.0.1:1", "ucx://h:1", "tls://h", "", "tcp://127.0.0.1:x", "inproc://a/b"]
)
def test_what_is_no_address_of_a_scheduler_is_one_clear_line(address: str) -> None:
    with pytest.raises(ConfigError, match=f"^--dask {address}: expected an address"), open_workers(scheduler=address):
        pass


@pytest.mark.parametrize("address", ["tls://10.0.0.1:8786", "10.0.0.1:8786"])
def test_tls_without_certificates_names_the_settings(address: str) -> None:
    pytest.importorskip("distributed", reason="the extra distributed is not installed")
    with (
        pytest.raises(
            ConfigError, match=f"^--dask {address}: no certificates: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"
        ),
        open_workers(scheduler=address),
    ):
        pass


def test_a_scheduler_with_tls_gives_the_same_runs_and_takes_no_others(
    recording: Recording, alone: list[ReplayRun | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra distributed is not installed")
    dask = pytest.importorskip("dask")
    cert, key = certificate(tmp_path, "dask")
    ends = {
        f"{end}.{what}": path
        for end in ("scheduler", "worker", "client")
        for what, path in (("cert", cert), ("key", key))
    }
    settings = {f"distributed.comm.tls.{name}": value for name, value in {"ca-file": cert, **ends}.items()}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls",
            security=distributed.Security(require_encryption=True),
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
    ):
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with open_workers(scheduler=address) as workers:
            (run,) = run_jobs(jobs()[1:], recording, executor=workers)
        assert_same(run, alone[1])
        (tmp_path / "other").mkdir()
        other, other_key = certificate(tmp_path / "other", "dask")
        monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2.0)
        theirs = {"ca-file": other, "client.cert": other, "client.key": other_key}
        with (
            dask.config.set({f"distributed.comm.tls.{name}": value for name, value in theirs.items()}),
            pytest.raises(ConnectError, match="no Dask scheduler answers"),
            open_workers(scheduler=address),
        ):
            pass


def test_without_the_extra_the_option_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ConfigError, match=r"run `pip install 'kube-rebalancer\[distributed\]'`$"),
        open_workers(scheduler="tcp://127.0.0.1:1"),
    ):
        pass
