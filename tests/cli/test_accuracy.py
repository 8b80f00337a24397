"""`rebalancer forecast --accuracy`: the daemon's forecasts, read from its database."""

import time
from pathlib import Path

import pytest

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast, Verdict
from rebalancer.store import open_records, upgrade
from tests.evaluation.builders import a_truth, made_at
from tests.programs.cli import Result, policy_for, rebalancer, write_policy
from tests.programs.in_process import run_here
from tests.real.servers.postgres import PostgresServer
from tests.store.builders import SteppingClock


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'rebalancer.db'}"


def run(folder: Path, url: str, *more: str) -> Result:
    return run_here(arguments(folder, url, *more))


def arguments(folder: Path, url: str, *more: str) -> list[str]:
    policy = write_policy(folder, policy_for("http://127.0.0.1:9"))  # nobody is asked but the database
    return ["forecast", "-f", str(policy), "--database", url, *more]


def fill(url: str, *, days: int = 6, nodes: int = 10) -> None:
    """A node of 4000, expected at 2000 (2400 with its margin): 1900 came until three days ago, 2300 since.

    The last one of each day in pool `batch` is one that a cycle was started for.
    """
    upgrade(url)
    now = time.time()
    with open_records(url=url, cluster="test", clock=SteppingClock(now)) as records:
        forecasts = records.forecasts()
        for ago in range(1, days + 1):
            made = now - (ago + 0.5) * DAY_SECONDS
            forecasts.keep([made_at(f"n{number}", made) for number in range(nodes)])
            forecasts.keep([made_at("b0", made, kind=ForecastKind.AHEAD, hot_from=made + 3600.0, pool="batch")])
        due = forecasts.due(now)
        forecasts.judge(
            [(number, truth_of(each, 2300.0 if each.until > now - 3 * DAY_SECONDS else 1900.0)) for number, each in due]
        )


def truth_of(forecast: StoredForecast, p95: float) -> Actuals:
    return a_truth(forecast, p95, Verdict.PREVENTED if forecast.kind is ForecastKind.AHEAD else None)


@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def test_the_figures_of_each_pool_are_in_the_json(
    tmp_path: Path, url: str, backend: str, request: pytest.FixtureRequest
) -> None:
    postgres: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgresql" else None
    if postgres is not None:
        url = postgres.create_database("accuracy")
    try:
        fill(url)
        result = run(tmp_path, url, "--accuracy", "-o", "json")
    finally:
        if postgres is not None:
            postgres.drop_database("accuracy")
    assert result.code == 0, result.err
    document = result.document
    assert document["schemaVersion"] == "2"
    batch, general = document["pools"]
    # 30 days 300 (7.5% of 4000) too low, 30 days 100 too high; hot is over 2200, and 2400 was said each time
    drift = "the error of the last 3 days is 7.5% of capacity, 2.5% before"
    none = {"prevented": 0, "falseAlarm": 0, "tooLate": 0, "notMoved": 0}
    counts = {"count": 60, "unknown": 0, "insufficientData": False, "relievedDays": 0}
    errors = {"mae": 0.05, "under": 0.0375, "over": 0.0125, "coverage": 1.0, "peakHourErrorHours": 1.5}
    hot = {"hotDays": 30, "predictedHot": 60, "hotRecall": 1.0, "hotPrecision": 0.5}
    figures = {**counts, **errors, **hot, "unchangedShare": 1.0, "unchangedMae": 0.05, "drift": drift}
    assert general == {"pool": "general", **figures, "verdicts": none}
    assert (batch["pool"], batch["count"], batch["insufficientData"], batch["mae"]) == ("batch", 0, True, None)
    assert batch["verdicts"] == {**none, "prevented": 6}
    assert document["all"] == {**figures, "verdicts": batch["verdicts"]}


def test_people_get_a_table_and_a_note_when_forecasts_get_worse(tmp_path: Path, url: str) -> None:
    fill(url)
    result = run(tmp_path, url, "--accuracy")
    assert result.code == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    figures = ["5%", "3.8%", "1.2%", "100%", "100%", "50%", "1.5", "100%", "5%"]
    assert ["general", "60", *figures] in lines
    assert ["(all)", "60", *figures] in lines
    [batch] = [line for line in result.out.splitlines() if line.startswith("batch") and "insufficient" in line]
    assert batch.endswith("insufficient data: at least 20 are needed")
    assert ["batch", "6", "0", "0", "0"] in lines
    [note] = [line for line in result.out.splitlines() if line.startswith("Note:")]
    assert note == (
        "Note: Pool general: forecasts get worse: the error of the last 3 days is 7.5% of capacity, 2.5% before."
    )


def test_since_narrows_what_is_counted_and_not_what_a_drift_is_known_from(tmp_path: Path, url: str) -> None:
    fill(url)
    result = run(tmp_path, url, "--accuracy", "--since", "3d", "-o", "json")
    assert result.code == 0, result.err
    [_, general] = result.document["pools"]
    assert (general["count"], general["over"]) == (20, 0.0)
    assert general["drift"].startswith("the error of the last 3 days is 7.5%")


@pytest.mark.parametrize("there", [False, True], ids=["no database", "an empty one"])
def test_before_anything_was_judged_there_is_one_line(tmp_path: Path, url: str, *, there: bool) -> None:
    if there:
        upgrade(url)
    result = run(tmp_path, url, "--accuracy")
    assert result.code == 0, result.err
    [line] = result.out.splitlines()
    assert line.startswith("No forecast since 20")
    assert line.endswith("has been evaluated yet; a forecast is evaluated after its day.")
    assert (tmp_path / "rebalancer.db").exists() is there
    document = run(tmp_path, url, "--accuracy", "-o", "json").document
    assert (document["pools"], document["all"]["count"], document["all"]["mae"]) == ([], 0, None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--accuracy --since yesterday", "--since: expected a duration such as 90s, 5m, 1h30m or 8d, got 'yest"),
        ("--accuracy --since ", "--since: expected a duration"),
        ("--since 3d", "--since: expected with --accuracy"),
        ("--accuracy --explain", "--node, -l and --explain: expected without --accuracy"),
        ("--accuracy --node n1", "--node, -l and --explain: expected without --accuracy"),
    ],
)
def test_what_can_not_be_asked_is_one_line(tmp_path: Path, url: str, more: str, message: str) -> None:
    result = run(tmp_path, url, *more.split(" "))
    assert result.code == 4
    assert message in result.error


def test_the_program_ends_with_its_exit_code_and_one_line(tmp_path: Path, url: str) -> None:
    result = rebalancer(*arguments(tmp_path, url, "--accuracy", "--since", "3"), cwd=tmp_path, cold=True)
    assert result.code == 4
    assert result.error.startswith("Error: --since: expected a duration")
    assert result.out == ""


def test_a_time_longer_than_any_clock_is_all_there_is(tmp_path: Path, url: str) -> None:
    fill(url, days=1)
    result = run(tmp_path, url, "--accuracy", "--since", "9999999999999999d", "-o", "json")
    assert result.code == 0, result.err
    assert result.document["since"] == "1970-01-01T00:00:00+00:00"
    assert result.document["all"]["count"] == 10


def test_a_database_that_is_behind_says_what_to_run(tmp_path: Path, url: str) -> None:
    (tmp_path / "rebalancer.db").touch()
    result = run(tmp_path, url, "--accuracy")
    assert result.code == 4
    assert "run `rebalancer db upgrade`" in result.error
