"""The listening socket's file descriptors in reserve."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from rebalancer.web.http import listening as listening_module
from rebalancer.web.http.listening import RESERVES, ReservedSocket


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Every file descriptor of this process is used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    taken = []
    try:
        while True:
            try:
                taken.append(os.dup(2))
            except OSError:
                break
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def listen() -> ReservedSocket:
    listening = ReservedSocket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    listening.setblocking(False)
    return listening


def test_without_a_free_descriptor_connections_are_accepted_one_after_the_other() -> None:
    with listen() as listening:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3 * RESERVES)]
        with no_descriptor_free():
            for _ in range(3):
                accepted = [listening.accept()[0] for _ in range(RESERVES)]
                with pytest.raises(OSError, match="Too many open files"):
                    listening.accept()
                for each in accepted:
                    each.close()
                listening.take_reserves()
        for each in clients:
            each.close()


def test_a_descriptor_that_another_thread_takes_meanwhile_ends_no_accepting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []

    def close(descriptor: int) -> None:
        closed(descriptor)
        if len(taken) < RESERVES - 1:
            taken.append(os.dup(2))

    with listen() as listening:
        client = socket.create_connection(listening.getsockname())
        with no_descriptor_free(), monkeypatch.context() as patched:
            closed = os.close
            patched.setattr(listening_module, "os", SimpleNamespace(close=close, open=os.open))
            accepted, _ = listening.accept()
        accepted.close()
        client.close()
    assert len(taken) == RESERVES - 1
    for each in taken:
        os.close(each)


def test_the_reserves_are_closed_with_the_socket() -> None:
    before = len(os.listdir("/proc/self/fd"))
    listening = listen()
    assert len(os.listdir("/proc/self/fd")) == before + 1 + RESERVES
    listening.close()
    listening.take_reserves()
    assert len(os.listdir("/proc/self/fd")) == before
