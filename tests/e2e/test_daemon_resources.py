"""A daemon that runs out of something: disk, file descriptors, memory, names. It evicts nothing meanwhile, says why in
one line, and goes on by itself once there is enough again."""

import resource
import shutil
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rebalancer.lab import Lab
from rebalancer.store import upgrade
from tests.e2e.servers import DaemonProcess, alert_policy, daemon, delivery, evicted, leading, until, warm_lab
from tests.faults.scenarios.disks import fill, small_disk

NAMES = """
import os, runpy, socket, sys
genuine = socket.getaddrinfo
def resolve(host, *arguments, **options):
    if str(host).endswith(".test"):
        if os.path.exists(os.environ["NO_NAMES"]):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        host = "127.0.0.1"
    return genuine(host, *arguments, **options)
socket.getaddrinfo = resolve
runpy.run_module("rebalancer", run_name="__main__", alter_sys=True)
"""
"""The program, where names under `test` are this machine's, and none are found while a file is there."""


FILE_DESCRIPTORS = """
import os, resource, runpy, sys, threading, time
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
def hoard():
    while not os.path.exists(os.environ["HOARD"]):
        time.sleep(0.05)
    taken = []
    try:
        while True:
            taken.append(os.dup(2))
    except OSError:
        os.write(2, b"every file descriptor is used\\n")
    while os.path.exists(os.environ["HOARD"]):
        time.sleep(0.05)
    for each in taken:
        os.close(each)
threading.Thread(target=hoard, daemon=True).start()
runpy.run_module("rebalancer", run_name="__main__", alter_sys=True)
"""
"""The program, where a thread takes every file descriptor while a file is there."""


def livez(host: str | None, port: int | None) -> int:
    """Status of /livez over a connection of its own, as the kubelet asks; 0 without an answer in a second."""
    connection = HTTPConnection(str(host), port, timeout=1.0)
    with closing(connection):
        try:
            connection.request("GET", "/livez", headers={"Connection": "close"})
            return connection.getresponse().status
        except OSError:
            return 0


def moves(lab: Lab, running: DaemonProcess, node: str) -> None:
    """An alert does what it should."""
    running.alert(node)
    until(lambda: evicted(lab, node), running.tail)
    until(running.ready, running.tail)
    assert len(evicted(lab, node)) == 1


def lines_with(running: DaemonProcess, text: str) -> list[str]:
    """The log's lines that have it."""
    return [line for line in running.log_file.read_text(errors="replace").splitlines() if text in line]


def assert_clear(running: DaemonProcess) -> None:
    """It still runs, and its log has no traceback."""
    assert running.process.poll() is None
    assert not lines_with(running, "Traceback"), running.tail()


def test_a_full_disk_of_the_database_evicts_nothing_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, warm_lab(warm=2) as lab:
        database = f"sqlite:///{disk / 'rebalancer.db'}"
        with leading(tmp_path, lab, database=database) as running:
            moves(lab, running, "warm-1")
            filler = fill(disk)
            until(lambda: running.post(delivery("warm-2")) == 503, running.tail)
            until(lambda: lines_with(running, "database or disk is full"), running.tail)
            assert evicted(lab, "warm-2") == []
            checks = running.get("/readyz?verbose")[1]
            assert "[-]database failed: the last write failed: " in checks
            assert "database or disk is full" in checks
            filler.unlink()
            until(running.ready, running.tail)  # without an alert or a cycle
            moves(lab, running, "warm-2")
            assert_clear(running)


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced by an older copy"])
def test_nothing_is_evicted_on_a_database_file_that_was_deleted(replaced: bool, tmp_path: Path) -> None:
    with warm_lab(warm=2) as lab:
        file = tmp_path / "rebalancer.db"
        upgrade(f"sqlite:///{file}")
        backup = tmp_path / "backup.db"
        shutil.copy(file, backup)
        with leading(tmp_path, lab, database=f"sqlite:///{file}") as running:
            moves(lab, running, "warm-1")
            if replaced:
                backup.replace(file)
            else:
                file.unlink()
            until(lambda: not running.ready(), running.tail)
            assert "[-]database failed: " in running.get("/readyz")[1]
            assert "the file was removed or replaced while it was open" in running.get("/readyz")[1]
            assert running.post(delivery("warm-2")) == 503
            assert running.post({"nodes": ["warm-2"]}, "/api/v1/trigger") == 202
            until(lambda: running.events("cycle failed"), running.tail)
            assert evicted(lab, "warm-2") == []
            assert file.exists() == replaced
            assert_clear(running)


def test_a_log_that_can_not_be_written_stops_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, warm_lab(warm=3) as lab:
        database = f"sqlite:///{tmp_path / 'rebalancer.db'}"
        with leading(disk, lab, database=database) as running:
            filler = fill(disk)
            # the last page of the log has room for a few lines
            for number in range(20):
                running.alert(f"unknown-{number}")
            moves(lab, running, "warm-2")
            assert running.log_file.stat().st_size % resource.getpagesize() == 0
            assert not lines_with(running, "warm-2")
            filler.unlink()
            moves(lab, running, "warm-3")
            until(lambda: lines_with(running, "warm-3"), running.tail)
            assert_clear(running)


def test_without_file_descriptors_the_daemon_says_so_once_a_minute_and_recovers(tmp_path: Path) -> None:
    with warm_lab(warm=2) as lab, leading(tmp_path, lab) as running:
        moves(lab, running, "warm-1")
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (3, hard))
        address = urlsplit(running.url)
        with socket.create_connection((address.hostname, address.port)):
            until(lambda: lines_with(running, "connections can't be accepted"), running.tail)
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        moves(lab, running, "warm-2")
        assert len(lines_with(running, "connections can't be accepted: [Errno 24] Too many open files")) == 1
        assert_clear(running)


def test_livez_answers_without_a_free_file_descriptor(tmp_path: Path) -> None:
    hoard = tmp_path / "hoard"
    with warm_lab(warm=1) as lab:
        env = {"HOARD": str(hoard), "REBALANCER_HEALTH_LISTEN": "127.0.0.1:0"}
        with leading(tmp_path, lab, program=FILE_DESCRIPTORS, env=env) as running:
            health = urlsplit(str(running.events("started")[0]["health"]))
            hoard.touch()
            until(lambda: lines_with(running, "every file descriptor is used"), running.tail)
            for _ in range(5):
                until(lambda: livez(health.hostname, health.port) == 200, running.tail)
            hoard.unlink()
            moves(lab, running, "warm-1")
            assert_clear(running)


def test_without_names_nothing_leads_and_the_daemon_recovers(tmp_path: Path) -> None:
    no_names = tmp_path / "no-names"
    no_names.touch()
    with warm_lab(warm=1) as lab:
        config = tmp_path / "config"
        config.write_text(lab.kubeconfig_text().replace("127.0.0.1", "cluster.test"))
        policy = alert_policy(lab.prometheus_url.replace("127.0.0.1", "prometheus.test"))
        with daemon(tmp_path, policy, config, program=NAMES, env={"NO_NAMES": str(no_names)}) as running:
            until(lambda: running.events("not leading"), running.tail)
            assert "does not resolve" in str(running.events("not leading")[0]["error"])
            until(lambda: "[-]lease" in running.get("/readyz?verbose")[1], running.tail)
            assert "does not resolve" in running.get("/readyz?verbose")[1]
            no_names.unlink()
            until(running.leads, running.tail)
            moves(lab, running, "warm-1")
            assert_clear(running)


def test_without_memory_the_daemon_says_so_without_a_traceback(tmp_path: Path) -> None:
    with warm_lab(warm=1) as lab, leading(tmp_path, lab) as running:
        resource.prlimit(running.process.pid, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
        until(lambda: running.post(delivery("warm-1")) == 503 and lines_with(running, "out of memory"), running.tail)
        assert not lines_with(running, "Traceback"), running.tail()
