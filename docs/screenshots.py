"""Write docs/images/dashboard-*.png: each page of the dashboard, light, dark and 390 px wide (`make screenshots`). And
replay.png and replay-maps.png of the example of a replay.

The pages are those of the practice cluster `demo` at a fixed time, after cycles that evict, shown by Chromium.
`python docs/screenshots.py FOLDER` writes to another folder.
"""

import argparse
import base64
import logging
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, sync_playwright
from starlette.types import ASGIApp

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.paths import shipped
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.wiring.active import Active
from rebalancer.bootstrap.wiring.history import history_keepers
from rebalancer.cli.commands.demo import demo_policy
from rebalancer.cycle.context import ForecastReaders, NullProgress
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest
from rebalancer.dashboard.sources import Sources
from rebalancer.dashboard.views import LiveViews
from rebalancer.evaluation.loop import EvaluationLoop
from rebalancer.forecasting.loop import ForecastLoop
from rebalancer.lab import Lab
from rebalancer.model.decisions.plan import Trigger
from rebalancer.policy import RebalancerPolicy
from rebalancer.prometheus.history.slo import PrometheusSlo
from rebalancer.store import open_records
from rebalancer.web import Auth, Metrics, WebPorts, WebServer, make_app

IMAGES = Path(__file__).parent / "images"
REPLAY = Path(__file__).resolve().parent / "examples" / "replay.html"
START = 1_790_080_200.0
"""2026-09-22 12:30 UTC."""
CYCLES, CYCLE_SECONDS = 10, 180.0
PAGES = {
    "overview": "/",
    "nodes": "/nodes",
    "node": "/nodes/gen-5",
    "evictions": "/evictions?last=1h",
    "cycles": "/cycles",
    "cycle": "{cycle}",
    "limits": "/limits",
    "services": "/services",
    "service": "/services/shop%2Fcheckout",
    "search": "/search?q=check",
    "reports": "/reports",
    "policy": "/policy",
}
FORMS = {"light": ("light", 1280, 800), "dark": ("dark", 1280, 800), "phone": ("light", 390, 844)}
"""Name -> (colour scheme, width, height)."""
COLOURS = 64

PIXELS = """async data => {
  const blob = await (await fetch("data:image/png;base64," + data)).blob();
  const image = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const bytes = canvas.getImageData(0, 0, image.width, image.height).data;
  let out = "";
  for (let at = 0; at < bytes.length; at += 32768) out += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(out)];
}"""


@dataclass
class Leads:
    """The one replica of the practice cluster leads."""

    waiting_for: str = ""
    term: int | None = 1

    def holds(self, margin_seconds: float = 0.0) -> bool:
        return True


@contextmanager
def practice_dashboard(folder: Path) -> Iterator[str]:
    """URL of the dashboard of the practice cluster, half an hour after its first cycle."""
    with Lab.start("demo", stepped=True, start_time=START) as lab:
        policy = with_forecasts(demo_policy(lab))
        settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}",
            history_dir=str(folder / "history"),
            kubeconfig=str(lab.write_kubeconfig(folder / "kubeconfig")),
        )
        with (
            acting_context(policy, settings, progress=NullProgress(), clock=lab.clock) as read,
            history_keepers(policy, settings, progress=NullProgress(), clock=lab.clock) as keepers,
            open_records(url=settings.database, cluster=policy.cluster, clock=lab.clock) as records,
        ):
            ledger, effect, forecasts = records.ledger(clock=lab.clock), records.effect(), records.forecasts()
            forecast = ForecastLoop(policy=policy, keepers=keepers, clock=lab.clock, ledger=ledger, records=forecasts)
            world = replace(read, effect=effect, forecasts=ForecastReaders(peaks=forecast.peaks))
            evaluation = EvaluationLoop(
                policy=policy,
                cluster=world.cluster,
                usage=world.usage,
                effect=effect,
                forecasts=forecasts,
                ledger=ledger,
                standard=PrometheusSlo(policy.usage, policy.effect.hot_node_slo),
                clock=lab.clock,
            )
            views = LiveViews(
                Sources(
                    current=lambda: Active(policy=policy, context=world, forecast_loop=forecast),
                    leadership=Leads(),
                    ledger=ledger,
                    inbox=records.inbox(clock=lab.clock),
                    archive=records.reading(),
                    effect=effect,
                    forecasts=forecasts,
                    clock=lab.clock,
                    policy_data=(shipped("policies") / "demo.yaml").read_bytes,
                )
            )
            acting = replace(world, record_usage=views.measured)
            for _ in range(CYCLES):
                if forecast.next_at() <= lab.clock.now():
                    forecast.look(world.cluster.snapshot())
                views.done(
                    run_cycle(acting, policy, request=CycleRequest(trigger=Trigger.PERIODIC), dry_run=False).report
                )
                lab.clock.sleep(CYCLE_SECONDS)
                evaluation.turn()
            server = WebServer(_app(views, policy), "127.0.0.1:0")
            server.start()
            try:
                yield server.url
            finally:
                server.stop(1.0)


def with_forecasts(policy: RebalancerPolicy) -> RebalancerPolicy:
    """The policy with forecasts that are shown and not acted on."""
    return policy.model_copy(update={"forecast": policy.forecast.model_copy(update={"mode": "Observe"})})


def _app(views: LiveViews, policy: RebalancerPolicy) -> ASGIApp:
    ports = WebPorts(
        inbox=None,  # type: ignore[arg-type]  # the pages alone are asked for
        policy=lambda: policy,
        wake=lambda: None,
        trigger=lambda nodes, strategy: None,
        alive=lambda: True,
        checks=list,
        views=views,
        views_open=True,
    )
    return make_app(ports, auth=Auth(), metrics=Metrics())


def palette_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG with a palette. `pixels` (height, width, 4) are RGBA; the alpha channel is dropped."""
    height, width, _ = pixels.shape
    colours = pixels[..., :3].astype(np.uint32) @ np.array([65536, 256, 1], dtype=np.uint32)
    known, index, counts = np.unique(colours, return_inverse=True, return_counts=True)
    channels = np.stack([known >> 16, known >> 8 & 255, known & 255], axis=1).astype(np.int32)
    # a few pixels in a colour of their own say more than many nearly grey ones of a letter's edge
    weight = counts * (1 + (channels.max(axis=1) - channels.min(axis=1)) / 16)
    palette = channels[np.argsort(-weight)[:COLOURS]]
    nearest = ((channels[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2).argmin(axis=1).astype(np.uint8)
    rows = np.zeros((height, width + 1), dtype=np.uint8)
    rows[:, 1:] = nearest[index].reshape(height, width)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def shoot(page: Page, painter: Page, path: Path) -> None:
    """Write what the page shows."""
    data = base64.b64encode(page.screenshot()).decode()
    width, height, raw = painter.evaluate(PIXELS, data)
    pixels = np.frombuffer(base64.b64decode(raw), dtype=np.uint8).reshape(height, width, 4)
    path.write_bytes(palette_png(pixels))


def shoot_replay(browser: Browser, painter: Page, folder: Path) -> None:
    """The top of the example of a replay, and its heat maps."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(REPLAY.as_uri())
    shoot(page, painter, folder / "replay.png")
    page.set_viewport_size({"width": 1280, "height": 1370})
    page.locator("#maps").evaluate("each => each.scrollIntoView()")
    shoot(page, painter, folder / "replay-maps.png")
    page.close()


def main(folder: Path) -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("needs chromium: apt-get install chromium", file=sys.stderr)  # noqa: T201
        return 1
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, practice_dashboard(Path(work)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        painter = browser.new_page()
        for form, (scheme, width, height) in FORMS.items():
            context = browser.new_context(
                base_url=url,
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": width, "height": height},
                timezone_id="Europe/Berlin",
            )
            page = context.new_page()
            page.goto("/cycles?acted=1")
            cycle = page.locator("tbody th a").first.get_attribute("href") or ""
            for name, path in PAGES.items():
                page.goto(path.format(cycle=cycle))
                shoot(page, painter, folder / f"dashboard-{name}-{form}.png")
            context.close()
        shoot_replay(browser, painter, folder)
        browser.close()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES)
    sys.exit(main(parser.parse_args().folder))
