"""Every command on a terminal of 80 columns, against the practice cluster of `demo`."""

import io
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console

from rebalancer.cli.output.tables import plain_table
from rebalancer.cli.output.times import localised
from rebalancer.cli.registry import COMMANDS
from rebalancer.lab import Lab
from rebalancer.model.notation.document import DIMENSIONS
from rebalancer.model.notation.figures import clock_time
from rebalancer.store import upgrade
from tests.cli import test_accuracy
from tests.cli.test_report import WEEK
from tests.e2e.test_backtest_cli import write_trace
from tests.evaluation.builders import fill
from tests.programs.cli import Result, policy_for, rebalancer, write_policy
from tests.programs.in_process import run_here

ROOT = Path(__file__).parents[2]
WIDTH = 80
JST = timezone(timedelta(hours=9))
OF_CLUSTER = ("--kubeconfig", "{kubeconfig}")
OF_LEDGER = ("-f", "{policy}", "--database", "{database}")
OF_BOTH = (*OF_CLUSTER, *OF_LEDGER)
CALLS = {
    "windows": ("windows", "--services", "-f", "{policy}", *OF_CLUSTER),
    "doctor": ("doctor", *OF_BOTH),
    "plan": ("plan", *OF_BOTH),
    "plan, wide": ("plan", "--all-nodes", *OF_BOTH),
    "explain pod": ("explain", "pod", "{pod}", *OF_BOTH),
    "explain node": ("explain", "node", "gen-2", *OF_BOTH),
    "explain node, long codes": ("explain", "node", "gen-5", *OF_BOTH),
    "forecast": ("forecast", *OF_BOTH),
    "advise": ("advise", "scheduler", "-o", "table", *OF_BOTH),
    "limits": ("limits", *OF_BOTH),
    "run": ("run", "--once", "--no-wait", *OF_BOTH),
    "evictions": ("evictions", *OF_CLUSTER),
    "proposals": ("proposals", "--all", *OF_LEDGER),
    "status": ("status", *OF_LEDGER),
    "limits, used": ("limits", *OF_BOTH),
    "pause": ("pause", "service/shop/checkout", "--reason", "a sale until the end of the week", *OF_LEDGER),
    "status, paused": ("status", *OF_LEDGER),
    "resume": ("resume", "service/shop/checkout", *OF_LEDGER),
    "report": ("report", *OF_LEDGER),
    "forecast --accuracy": ("forecast", "--accuracy", *OF_BOTH),
    "db status": ("db", "status", "--database", "{database}"),
    "db prune": ("db", "prune", "--database", "{database}"),
    "policy": ("policy", "validate", "{policy}"),
    "policy show": ("policy", "show", "-f", "{policy}"),
    "policy example": ("policy", "example"),
    "version": ("version",),
    "backtest": ("backtest", "--traces", "{traces}"),
    "backtest, folders": ("backtest", "--traces", "{traces}", "--traces", "{more_traces}"),
    "assess": ("assess", *OF_BOTH),
    "cleanup": ("cleanup", *OF_CLUSTER),
    "demo": ("demo", "--speed", "120"),
    "trigger": ("trigger", "--node", "gen-1", "--server", "{server}"),
    "resolve": ("resolve", "eviction", "1", "--reason", "the pod is not wanted any more", *OF_LEDGER),
    "report, full": ("report", "-f", "{week_policy}", "--database", "{week}", *WEEK, "--by", "{dimensions}"),
    "report, pools": ("report", "-f", "{week_policy}", "--database", "{week}", *WEEK),
    "forecast --accuracy, full": ("forecast", "--accuracy", "-f", "{week_policy}", "--database", "{judged}"),
}
"""In this order: the later ones show what the run has done."""
SILENT = {
    "approve": "a line; see test_approvals",
    "reject": "a line; see test_approvals",
    "completion": "a script",
    "lab": "serves until it is stopped",
    "replay": "needs days of history; its tables are those of test_replay_output",
    "try": "needs days of history; its tables are those of test_replay_output",
}
"""Commands that print no table of the cluster's names here."""
GROUPS = ("advise", "db", "explain", "policy", "resolve")
"""Commands that have commands."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("terminal")
    with (
        Lab.start("demo") as lab,
        HTTPServer(("127.0.0.1", 0), Accepts) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        Thread(target=server.serve_forever, daemon=True).start()
        patch.setenv("REBALANCER_HISTORY_DIR", str(folder / "history"))
        policy = folder / "policy.yaml"
        text = (ROOT / "policies" / "demo.yaml").read_text()
        policy.write_text(re.sub(r"url: .*", f"url: {lab.prometheus_url}", text))
        pods = ["{namespace}/{name}".format(**each["metadata"]) for each in lab.cluster.pods()]
        upgrade(f"sqlite:///{folder / 'rebalancer.db'}")
        yield {
            "policy": str(policy),
            "kubeconfig": str(lab.write_kubeconfig(folder / "kubeconfig")),
            "database": f"sqlite:///{folder / 'rebalancer.db'}",
            "pod": next(each for each in pods if each.startswith("shop/checkout-")),
            "pods": " ".join([*pods, "shop/web-0"]),
            "server": f"http://127.0.0.1:{server.server_port}",
            **recorded(folder),
        }
        server.shutdown()


def recorded(folder: Path) -> dict[str, str]:
    """What commands read that no practice cluster has: traces of CPU, and databases of a week."""
    week, judged = (f"sqlite:///{folder / name}" for name in ("week.db", "judged.db"))
    upgrade(week)
    fill(week)
    test_accuracy.fill(judged)
    for name in ("traces", "more"):
        (folder / name).mkdir()
        write_trace(folder / name, "one", 7, level=30)
        write_trace(folder / name, "two", 6, level=10)
    week_policy = str(write_policy(folder, policy_for("http://127.0.0.1:9"), "week.yaml"))
    return {
        "week": week,
        "judged": judged,
        "week_policy": week_policy,
        "dimensions": ",".join(DIMENSIONS),
        "traces": str(folder / "traces"),
        "more_traces": str(folder / "more"),
    }


class Accepts(BaseHTTPRequestHandler):
    """The daemon's answer to `trigger`."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def call(names: dict[str, str], *words: str) -> Result:
    done = run_here([word.format(**names) for word in words], columns=WIDTH)
    assert done.code in (0, 2), done.err
    return done


def check(text: str, pods: set[str]) -> None:
    """No line is longer than the terminal, no row goes on in a second line, no name is cut."""
    for line in text.splitlines():
        assert len(line) <= WIDTH, line
        figures = re.fullmatch(r"[-+.%m\d ]*", line)  # aligned to the right
        assert figures or len(line) - len(line.lstrip()) <= 4, f"a row that goes on: {line}"
        assert "…" not in line
    namespaces = {pod.partition("/")[0] for pod in pods}
    known = {*pods, *(f"{space}/{name}" for space, name in services(pods))}
    for name in re.findall(r"[\w./-]+/[\w.-]*[\w]", text):
        if name.partition("/")[0] in namespaces:
            assert name in known, f"{name} is cut"
    for name in re.findall(r"\b(?:gen|cmp)-\w*", text):
        assert re.fullmatch(r"gen-[1-8]|cmp-[1-4]", name), f"{name} is cut"


def services(pods: set[str]) -> set[tuple[str, str]]:
    """(namespace, every beginning of a pod's name that may be its service's)."""
    cut = [(pod.partition("/")[0], pod.partition("/")[2].split("-")) for pod in pods]
    return {(space, "-".join(parts[:end])) for space, parts in cut for end in (1, 2, 3) if end < len(parts)}


def test_every_command_is_tried_at_80_columns() -> None:
    assert {name.split()[0].rstrip(",") for name in (*CALLS, *SILENT)} == {*COMMANDS}


@pytest.mark.parametrize("name", CALLS)
def test_no_name_is_cut_and_no_row_wrapped_at_80_columns(name: str, names: dict[str, str]) -> None:
    done = call(names, *CALLS[name])
    check(done.out, set(names["pods"].split()))


def test_a_time_in_a_message_is_local_and_has_its_day_unless_that_is_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        noon = datetime.now(JST).replace(hour=12, minute=0, second=0, microsecond=0).timestamp()
        message = localised(f"peak expected at {clock_time(noon)}, over 75% from {clock_time(noon + 86_400)}")
        tomorrow = datetime.fromtimestamp(noon + 86_400, JST).strftime("%Y-%m-%d")
        assert message == f"peak expected at 12:00 JST, over 75% from {tomorrow} 12:00 JST"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_the_list_of_commands_is_not_cut_at_80_columns(group: str) -> None:
    assert "..." not in run_here([*group.split(), "-h"], columns=WIDTH).out.partition("Commands:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_values_in_words_of_people(command: str) -> None:
    assert not re.search(r"-[\w-]+ <(str|int|path|list|float)", run_here([command, "-h"], columns=WIDTH).out)


def test_a_command_without_a_policy_says_what_to_type() -> None:
    done = rebalancer("plan")
    assert (done.code, done.out) == (4, "")
    assert "type -f FILE or set REBALANCER_POLICY" in done.err


def test_the_last_cycle_of_a_database_is_a_sentence(names: dict[str, str]) -> None:
    last = call(names, "db", "status", "--database", "{week}").out.partition("Last cycle: ")[2]
    assert last.startswith("cluster ")
    assert not re.search(r"\d{9}|False|[{}\[\]]", last), "no columns of the table, no seconds since the epoch"


def test_both_ends_of_a_report_have_their_day(names: dict[str, str]) -> None:
    first = " ".join(call(names, "report", "-f", "{week_policy}", "--database", "{week}").out.splitlines()[:2])
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d \w+ to \d{4}-\d\d-\d\d \d\d:\d\d \w+", first), first


def test_a_wide_table_has_all_columns(names: dict[str, str]) -> None:
    node = ("explain", "node", "gen-2", *OF_BOTH)
    assert "REQUEST" not in call(names, *node).out
    assert "REQUEST" in call(names, *node, "-o", "wide").out


def test_a_table_without_rows_keeps_its_heads() -> None:
    console = Console(width=WIDTH, record=True, file=io.StringIO())
    console.print(plain_table("Limits", "SCOPE", "LIMIT"))
    assert console.export_text().split() == ["Limits", "SCOPE", "LIMIT"]


def test_columns_that_are_too_many_stand_in_further_blocks_with_their_keys() -> None:
    console = Console(width=20, record=True, file=io.StringIO())
    table = plain_table("", "POOL", "FIRST", "SECOND", "THIRD", right=(), keys=1)
    table.add_row("general", "1", "2", "3")
    console.print(table)
    assert console.export_text().splitlines() == [
        "POOL     FIRST",
        "general  1",
        "POOL     SECOND",
        "general  2",
        "POOL     THIRD",
        "general  3",
    ]
