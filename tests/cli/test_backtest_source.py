"""What `rebalancer backtest` is told to look at, before it looks."""

from pathlib import Path

import pytest
import typer

from rebalancer.cli.main import app
from rebalancer.model.errors import ConfigError
from tests.programs.cli import policy_for, write_policy


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("REBALANCER_TRACES", "REBALANCER_POLICY", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def refused(*arguments: str | Path) -> str:
    """The line that `backtest` ends with."""
    with pytest.raises(ConfigError) as caught:
        typer.main.get_command(app).main(["backtest", *map(str, arguments)], standalone_mode=False)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path, policy_for("http://127.0.0.1:1"))


def test_one_source_is_needed_and_one_only(policy: Path, tmp_path: Path) -> None:
    assert refused() == "expected --traces FOLDER, or --policy FILE for the cluster's own history"
    assert refused("--traces", tmp_path, "--policy", policy) == "--traces and --policy: expected one of them"


def test_what_is_typed_counts_more_than_a_variable(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REBALANCER_TRACES", str(tmp_path))
    assert "kubeconfig" in refused("--policy", policy)
    monkeypatch.setenv("REBALANCER_POLICY", str(policy))
    assert "expected a folder with CSV files" in refused("--traces", tmp_path)
    assert "expected a folder with CSV files" in refused()
    monkeypatch.delenv("REBALANCER_TRACES")
    assert "kubeconfig" in refused()


@pytest.mark.parametrize("days", ["4", "31"])
def test_days_are_five_to_thirty(policy: Path, days: str) -> None:
    assert refused("--policy", policy, "--days", days) == f"--days {days}: expected 5 to 30"


def test_a_plot_of_an_unknown_kind_is_refused_before_the_work(tmp_path: Path) -> None:
    reported = refused("--traces", tmp_path, "--plot", "plot.png")
    assert reported == "--plot plot.png: expected a name that ends with .svg or .html"
