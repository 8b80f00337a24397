"""A real Prometheus beside the lab, for PromQL that the lab doesn't answer itself.

It scrapes the lab, and starts with the minutes before, so that rates have a value at once, and with as many days before
as are asked for. Longer histories stay the lab's own: they are answered for plain selectors.
"""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rebalancer.lab.loads.usage import SCRAPE_SECONDS
from rebalancer.lab.prometheus.past import import_samples

BEFORE_SECONDS = 1200.0
"""History that it starts with: a rate window of 5 minutes, 10 minutes of stabilization, and some."""
_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_CONFIGURATION = """\
global: {{scrape_interval: {interval:g}s}}
scrape_configs:
- job_name: lab
  honor_labels: true
  static_configs: [{{targets: ["{target}"]}}]
"""


def installed() -> bool:
    """Whether `prometheus` and `promtool` are on PATH."""
    return all(shutil.which(name) for name in ("prometheus", "promtool"))


@contextmanager
def real_prometheus(
    url: str, folder: Path, *, page: Callable[[float], str], past: Callable[[Path], None], now: float
) -> Iterator[str]:
    """The URL of a Prometheus that scrapes `url`, ended with the context. Raises OSError when it does not start.

    `page` is the lab's metrics page at a moment (seconds since the epoch), asked in ascending order up to `now`. `past`
    writes blocks of the time before that into the data folder.
    `folder` takes its configuration and data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _import(folder, page, now)
    past(folder / "data")
    configuration = folder / "prometheus.yml"
    target = url.removeprefix("http://")
    configuration.write_text(_CONFIGURATION.format(interval=SCRAPE_SECONDS, target=target), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_until_ready(process, f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _import(folder: Path, page: Callable[[float], str], now: float) -> None:
    """Blocks of the time up to `now`."""
    count = int(BEFORE_SECONDS / SCRAPE_SECONDS)
    samples = folder / "before.om"
    with samples.open("w", encoding="utf-8") as file:
        for back in range(count - 1, -1, -1):
            at = now - back * SCRAPE_SECONDS
            lines = (line for line in page(at).splitlines() if not line.startswith("#"))
            file.writelines(f"{line} {at:.3f}\n" for line in lines)
        file.write("# EOF\n")
    import_samples(samples, folder / "data")


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise OSError("prometheus did not start")
