"""Commands on a practice cluster, with its clock."""

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands import contexts, ledger_view
from rebalancer.bootstrap.wiring import history
from rebalancer.lab import Lab
from rebalancer.store import SqlLedger, open_records
from tests.programs.cli import Result
from tests.programs.in_process import run_here

ROOT = Path(__file__).parents[2]
START = 1_790_000_000.0


class Commands:
    """Commands of one person in one folder, with the practice cluster's clock."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        text = (ROOT / "policies" / "demo.yaml").read_text()
        self.policy = folder / "policy.yaml"
        self.policy.write_text(re.sub(r"url: .*", f"url: {lab.prometheus_url}", text))
        self.kubeconfig = lab.write_kubeconfig(folder / "config")
        self.database = f"sqlite:///{folder / 'rebalancer.db'}"

    def run(self, *words: str, kubeconfig: Path | None = None) -> Result:
        connected = ("-f", str(self.policy), "--kubeconfig", str(kubeconfig or self.kubeconfig))
        return run_here([*words, *connected, "--database", self.database])

    @contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        with open_records(url=self.database, cluster="demo", clock=self.lab.clock) as records:
            yield records.ledger(clock=self.lab.clock)

    def document(self, *words: str) -> Any:
        done = self.run(*words, "-o", "json")
        assert done.code == 0, done.err
        return done.document


@contextmanager
def commands_on_the_lab(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Commands]:
    with Lab.start("demo", stepped=True, start_time=START) as lab:
        for module, name in (
            (contexts, "planning_context"),
            (contexts, "evaluated_context"),
            (history, "history_keepers"),
            (ledger_view, "ledger_view"),
        ):
            monkeypatch.setattr(module, name, functools.partial(getattr(module, name), clock=lab.clock))
        monkeypatch.setenv("REBALANCER_HISTORY_DIR", str(folder / "history"))
        yield Commands(lab, folder)
