"""The listening socket's file descriptor in reserve."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rebalancer.web.listening import ReservedSocket


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
    listening.listen(8)
    listening.setblocking(False)
    return listening


def test_17_7_without_a_free_descriptor_connections_are_accepted_one_after_the_other() -> None:
    with listen() as listening:
        clients = [socket.create_connection(listening.getsockname()) for _ in range(3)]
        with no_descriptor_free():
            for _ in clients:
                accepted, _ = listening.accept()
                with pytest.raises(OSError, match="Too many open files"):
                    listening.accept()
                accepted.close()
                listening.take_reserve()
        for each in clients:
            each.close()


def test_17_7_the_reserve_is_closed_with_the_socket() -> None:
    before = len(os.listdir("/proc/self/fd"))
    listening = listen()
    assert len(os.listdir("/proc/self/fd")) == before + 2
    listening.close()
    listening.take_reserve()
    assert len(os.listdir("/proc/self/fd")) == before
