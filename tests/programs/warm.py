"""Processes of the program that start at once: `start(...)`, like `subprocess.Popen`.

Each is forked from a server that has imported the program already, one for each process that runs tests. It is a
process like any other, with arguments, environment, folder, stdout, stderr, signals and an exit code of its own, and
runs what `python -m rebalancer` runs. Only the interpreter's start, the imports and the dismantling of modules are
spared: together they take longer than most commands.
"""

import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select

ROOT = Path(__file__).parents[2]
NUMBER = struct.Struct("!i")
MOST_BYTES = 65536
"""Of one request: arguments and environment."""


class WarmProcess:
    """One that runs, or has ended: the part of `subprocess.Popen` that tests need."""

    def __init__(self, arguments: Sequence[str], answers: socket.socket) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._answers = answers
        self.pid = self._number()

    def _number(self) -> int:
        data = self._answers.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            raise RuntimeError(f"the server that forks {self.args} is gone")
        return int(NUMBER.unpack(data)[0])

    def poll(self) -> int | None:
        """The exit code, `-n` after signal n; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select([self._answers], [], [], timeout)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing, when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | str | None, stdout: int, stderr: int
) -> WarmProcess:
    """Begin `python -m rebalancer ARGUMENTS` with these file descriptors, or DEVNULL, and nothing on stdin."""
    request = json.dumps({"arguments": list(arguments), "env": dict(env), "cwd": str(cwd or os.getcwd())}).encode()
    if len(request) > MOST_BYTES:
        raise ValueError(f"{len(request)} bytes of arguments and environment: expected at most {MOST_BYTES}")
    server = _server()
    ours, theirs = socket.socketpair()
    with theirs, Path(os.devnull).open("wb") as nothing:
        outputs = [nothing.fileno() if each == subprocess.DEVNULL else each for each in (stdout, stderr)]
        socket.send_fds(server, [request], [theirs.fileno(), *outputs])
    return WarmProcess(arguments, ours)


_starting = threading.Lock()
_servers: dict[int, socket.socket] = {}


def _server() -> socket.socket:
    """Where to ask this process's server; started when first asked."""
    with _starting:
        if os.getpid() not in _servers:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(_stop, ours, process)
            _servers[os.getpid()] = ours
        return _servers[os.getpid()]


def _stop(server: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    server.close()
    process.wait()


# ---- in the server


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Comes back in each that was forked, with its arguments, and at the end with None."""
    while True:
        _bury()
        request, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not request:
            return None
        if os.fork() == 0 and _keep(fds[0]):
            requests.close()
            return _become(json.loads(request), stdout=fds[1], stderr=fds[2])
        for each in fds:
            os.close(each)


def _bury() -> None:
    """Those who have told all they had to."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(answers: int) -> bool:
    """Fork once more: true in the process that was asked for. The other one tells its pid and how it ends."""
    pid = os.fork()
    if pid == 0:
        os.close(answers)
        return True
    os.closerange(0, answers)
    os.closerange(answers + 1, os.sysconf("SC_OPEN_MAX"))
    os.write(answers, NUMBER.pack(pid))
    status = os.waitpid(pid, 0)[1]
    try:
        os.write(answers, NUMBER.pack(status))
    finally:
        os._exit(0)


def _become(wanted: dict[str, object], *, stdout: int, stderr: int) -> list[str]:
    """Take over what was asked for; the arguments."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(str(wanted["cwd"]))
    os.environ.clear()
    os.environ.update(wanted["env"])
    return list(wanted["arguments"])


def _run() -> int:
    """The exit code, as the interpreter would make it."""
    try:
        runpy.run_module("rebalancer", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - a signal's exception, too, ends it with a traceback
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> None:
    """As the interpreter does: wait for threads, call what was registered for the end, write what is left."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """The server, and in the end each process that it forks."""
    import rebalancer

    for module in pkgutil.walk_packages(rebalancer.__path__, "rebalancer."):
        if module.name != "rebalancer.__main__":
            importlib.import_module(module.name)
    importlib.import_module("numpy.ma")  # np.unique imports it when it is first called
    faulthandler.enable()  # of each process that is forked, too: a fatal signal prints where each thread was
    gc.collect()
    gc.freeze()  # the collector of a forked process leaves alone, and unwritten, what they share
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is for pytest
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv[1:] = arguments
        _end(_run())


if __name__ == "__main__":
    main()
