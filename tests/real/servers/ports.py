"""Starts a server that is not ours on a loopback port, and waits until it answers."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

TRIES = 3
READY_SECONDS = 30.0


def start(
    command: Callable[[int], list[str]], *, folder: Path, ready: Callable[[int], bool]
) -> tuple[subprocess.Popen[bytes], int]:
    """The process and its port; what it says goes to `folder/log`.

    The port is free when chosen and may be taken when used, so a few are tried.
    """
    log = folder / "log"
    for _ in range(TRIES):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port), cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        if _answers(process, port, ready):
            return process, port
        process.kill()
        process.wait()
    raise RuntimeError(f"{command(0)[0]} doesn't start: {log.read_text()}")


def _answers(process: subprocess.Popen[bytes], port: int, ready: Callable[[int], bool]) -> bool:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if ready(port):
            return True
        time.sleep(0.05)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End it, politely at first."""
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
