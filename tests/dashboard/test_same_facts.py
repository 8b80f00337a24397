"""The same fact in every output: commands, their JSON, the dashboard's pages, metrics and the report."""

import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from rebalancer.bootstrap.commands import ledger_view
from rebalancer.cli.commands import report
from rebalancer.cli.output.cycle import print_cycle
from rebalancer.cli.output.report_tables import print_report
from rebalancer.daemon.telemetry import count
from rebalancer.dashboard.views import LiveViews
from rebalancer.lab import Lab
from rebalancer.model.notation.figures import millicores, percent
from rebalancer.notifications.messages import evictions
from rebalancer.web import Metrics
from rebalancer.web.pages.report_page import render_report
from tests.dashboard.test_views import ANY, Shown, a_day
from tests.e2e.servers import alert_policy
from tests.programs.in_process import run_here
from tests.web.builders import NOW, a_report
from tests.web.fakes import AsgiClient, Daemon
from tests.web.readers import read_page
from tests.web.scenarios import the_app


class At:
    """The module `time` of a command, with the lab's clock."""

    def __init__(self, lab: Lab) -> None:
        self.time = lab.clock.now


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    with a_day(tmp_path) as made:
        opened = functools.partial(ledger_view.ledger_view, clock=made.lab.clock)
        monkeypatch.setattr(ledger_view, "ledger_view", opened)
        monkeypatch.setattr(report, "time", At(made.lab))
        yield made


def document(it: Shown, folder: Path, command: str, *words: str) -> Any:
    """What a command prints as JSON, on the cluster and the database of the dashboard."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(alert_policy(it.lab.prometheus_url)))
    cluster = ("--kubeconfig", str(folder / "config")) if command != "report" else ()
    done = run_here(
        [command, "-f", str(path), "--database", f"sqlite:///{folder / 'db'}", *cluster, "-o", "json", *words]
    )
    assert done.code == 0, done.err
    return done.document


DOORS = ("status", "limits", "page, list", "page, limits")


def in_flight(it: Shown, folder: Path) -> dict[str, int]:
    """Evictions in flight, by where they are shown."""
    page = LiveViews(it.sources).limits()  # new views: a page is reused for ten seconds
    lines = document(it, folder, "limits")["limits"]
    return {
        "status": len(document(it, folder, "status")["inFlight"]),
        "limits": sum(each["used"] for each in lines if each["scope"] == "service" and "in flight" in each["limit"]),
        "page, list": len(page.open_evictions),
        "page, limits": sum(
            each.used for each in page.limits if each.scope.kind == "service" and "in flight" in each.what
        ),
    }


def test_evictions_in_flight_are_the_same_everywhere(it: Shown, tmp_path: Path) -> None:
    for name in ("warm-1", "warm-2"):
        it.cycle(name)
    assert in_flight(it, tmp_path) == dict.fromkeys(DOORS, 2)
    it.lab.clock.sleep(900.0)  # the replacements are Ready, and no cycle has recorded it yet
    assert len(it.ledger.open_evictions()) == 2
    assert in_flight(it, tmp_path) == dict.fromkeys(DOORS, 0)
    assert it.views.overview(ANY).open_breakers == ()


def test_evictions_are_counted_alike_everywhere(it: Shown, tmp_path: Path) -> None:
    metrics, reports = Metrics(), [it.cycle("warm-1"), it.cycle("warm-2"), it.cycle()]
    for each in reports:
        count(metrics, each, 1.0)
    it.lab.clock.sleep(60.0)
    printed = document(it, tmp_path, "report", "--since", "1d")
    cycles, page = it.views.cycles(before=None, after=None, acted=False), it.views.reports(days=7, by=None).report
    found = {
        "cycles": sum(len(each.evictions) for each in reports),
        "metrics": scraped(metrics, "rebalancer_evictions_total"),
        "cycles page": sum(sum(each.outcomes.values()) for each in cycles.cycles),
        "services page": sum(each.evictions for each in it.views.services(days=7, text="").services),
        "report page": page.evictions,
        "report page, services": sum(each.evictions for each in page.services),
        "report": printed["evictions"],
        "report, services": sum(each["evictions"] for each in printed["services"]),
    }
    assert found == dict.fromkeys(found, 2)


def test_the_time_until_ready_is_that_of_the_replacement_not_of_the_next_cycle(it: Shown) -> None:
    it.cycle("warm-1")
    it.lab.clock.sleep(3600.0)
    it.cycle()
    page = it.views.node("warm-1")
    assert page is not None
    [eviction] = page.evictions
    [ready] = [each.at for each in it.lab.log.entries("ready") if each.name == eviction.replaced.replacement_pod]
    assert eviction.replaced.replaced_at == pytest.approx(ready, abs=1.0)


def scraped(metrics: Metrics, name: str) -> float:
    lines = metrics.page()[0].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def printed(draw: Callable[[Console], None]) -> str:
    out = io.StringIO()
    draw(Console(width=240, file=out))
    return out.getvalue()


def test_a_figure_of_a_cycle_reads_the_same_in_tables_pages_and_notifications(
    it: Shown,
) -> None:
    made = it.cycle("warm-1")
    [eviction] = made.evictions
    [line] = [each for each in made.nodes if each.name == "warm-1"]
    share, planned, used = percent(line.cpu_before), percent(line.cpu_planned), millicores(eviction.cpu_millicores)
    client = AsgiClient(the_app(it.views, Daemon()))
    texts = {
        "table": printed(lambda console: print_cycle(console, made)),
        "page of evictions": read_page(client.get("/evictions?").body).one("main").text,
        "page of the cycle": read_page(client.get(f"/cycles/{made.id}?").body).one("main").text,
        "message": eviction.reason,
        "notification": evictions(made)[0].text,
    }
    client.close()
    assert {name for name, text in texts.items() if share not in text} == set()
    for name in ("table", "page of evictions", "page of the cycle"):
        assert used in texts[name].split(), name
    for name in ("table", "notification"):
        assert planned in texts[name], name


def test_a_figure_of_a_report_reads_the_same_in_the_terminal_and_on_the_page() -> None:
    report = a_report()
    table = printed(lambda console: print_report(console, report, clusters=["blue"]))
    page = read_page(render_report(report, cluster="blue", now=NOW)).one("main").text
    for line in report.lines:
        planned, measured = (
            millicores(each * 1000) for each in (line.counts.relief_planned, line.counts.relief_measured)
        )
        for figure in (percent(line.discovery.share), percent(line.effectiveness.share), planned, measured):
            assert figure in table, figure
            assert figure in page, figure


def test_the_page_of_limits_follows_the_ledger_once(it: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    it.cycle("warm-1")
    read: list[str] = []

    def spied(name: str, of: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            read.append(name)
            return of(*given)

        return called

    for name in ("open_evictions", "entries", "pauses", "backoffs"):
        monkeypatch.setattr(it.ledger, name, spied(name, getattr(it.ledger, name)))
    assert len(LiveViews(it.sources).limits().open_evictions) == 1
    assert sorted(read) == ["backoffs", "entries", "open_evictions", "pauses"]
