"""`rebalancer report`: what the database says, and nothing else is asked."""

import csv
import io
import json
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rebalancer.cli.output.json import SCHEMA_VERSION
from rebalancer.store import open_records, upgrade
from tests.effect.builders import an_episode
from tests.evaluation.builders import UNTIL, fill
from tests.programs.cli import Result, policy_for, rebalancer, write_policy
from tests.programs.in_process import run_here
from tests.real.servers.postgres import PostgresServer
from tests.store.builders import SteppingClock

WEEK = ("--since", "2024-10-04", "--until", "2024-10-11")
SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "reference" / "report.schema.json").read_text()
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The week of `recorded`, on SQLite."""
    made = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(made)
    fill(made)
    return made


@pytest.fixture
def empty(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'empty.db'}"
    upgrade(made)
    return made


def run(folder: Path, url: str, *more: str) -> Result:
    return run_here(arguments(folder, url, *more))


def arguments(folder: Path, url: str, *more: str) -> list[str]:
    policy = write_policy(folder, policy_for("http://127.0.0.1:9"))  # nobody is asked but the database
    return ["report", "-f", str(policy), "--database", url, *more]


# ---- JSON


def mistakes(document: Any) -> list[str]:
    """Where the document is not what the shipped schema says, fields that it doesn't name among them."""
    strict = json.loads(json.dumps(SCHEMA), object_hook=_nothing_else)
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(strict).iter_errors(document)]


def _nothing_else(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "additionalProperties": False} if "properties" in part and "required" in part else part


@pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def test_the_json_is_what_the_shipped_schema_says(
    tmp_path: Path, url: str, backend: str, request: pytest.FixtureRequest
) -> None:
    postgres: PostgresServer | None = request.getfixturevalue("postgres") if backend == "postgresql" else None
    try:
        if postgres is not None:
            url = postgres.create_database("report")
            upgrade(url)
            fill(url)
        result = run(tmp_path, url, *WEEK, "--by", "cluster,pool,strategy,trigger", "-o", "json")
    finally:
        if postgres is not None:
            postgres.drop_database("report")
    assert result.code == 0, result.err
    document = result.document
    assert mistakes(document) == []
    assert document["clusters"] == ["test"]
    assert (document["since"], document["until"]) == ("2024-10-04T00:00:00+00:00", "2024-10-11T00:00:00+00:00")
    assert document["total"]["discovery"] == {"part": 3, "whole": 4, "share": 0.75}
    assert [each["trigger"] for each in document["lines"]] == ["", "forecast", "alert", "periodic"]
    # each part of the schema was looked at
    for name in ("lines", "reasons", "trend", "pools", "daily", "hottest", "ineffective", "services", "accuracy"):
        assert document[name], name
    assert document["breakdown"]["evicted"] == 4000.0
    assert document["comparison"]["sufficientData"]


def test_the_schema_is_one_and_refuses_what_is_wrong(tmp_path: Path, url: str) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schemaVersion"]["const"] == SCHEMA_VERSION
    document = run(tmp_path, url, *WEEK, "-o", "json").document
    for change in (
        {"total": "none"},
        {"by": ["colour"]},
        {"notes": [1]},
        {"total": document["total"] | {"hot": -1}},
        {"total": document["total"] | {"discovery": {"part": 1, "whole": 1, "share": 1.5}}},
        {"total": document["total"] | {"reasons": {"colour/red": 1}}},
        {"more": 1},
    ):
        assert mistakes(document | change), change
    for name in document:
        assert mistakes({key: value for key, value in document.items() if key != name}), name


def test_a_field_of_a_later_version_is_none_of_the_shipped_schemas_business(tmp_path: Path, url: str) -> None:
    document = run(tmp_path, url, *WEEK, "-o", "json").document
    document["total"]["later"] = document["later"] = 1
    assert Draft202012Validator(SCHEMA).is_valid(document)


# ---- for people


def test_the_table_tells_rates_reasons_nodes_services_and_what_moved_besides(tmp_path: Path, url: str) -> None:
    result = run(tmp_path, url, *WEEK, "--by", "trigger")
    assert result.code == 0, result.err
    lines = [re.split(r" {2,}", line.strip()) for line in result.out.splitlines()]
    assert lines[0] == ["Effect of evictions: cluster test, 2024-10-04 00:00 UTC to 2024-10-11 00:00 UTC, 3 evictions"]
    assert ["alert", "2", "2 of 4 (50%)", "2 of 2 (100%)", "1 of 2 (50%)", "3", "2400m", "1500m", "150"] in lines
    # a rate of nothing
    assert ["(not discovered)", "1", "-", "-", "-", "0", "0m", "0m", "45"] in lines
    assert ["(all)", "4", "3 of 4 (75%)", "2 of 3 (66.7%)", "1 of 2 (50%)", "3", "2400m", "1500m", "225"] in lines
    assert [
        *("eviction", "limits", "1 of 1 (100%)", "limits were used up"),
        "n2: nothing evicted: limits were used up",
    ] in lines
    assert lines[lines.index(["PREVENTED", "FALSE ALARM", "TOO LATE"]) + 1] == ["1", "1", "0"]
    assert lines[lines.index(["By day, UTC"]) + 3][:3] == ["2024-10-05", "2", "2 of 2 (100%)"]
    assert ["n1", "general", "2", "150", "3", "1"] in lines
    assert ["shop/web", "3", "1", "alert 3", "2 of 3 (66.7%)"] in lines
    assert ["16000m", "-4000m", "0m", "600m", "0m", "400m", "0m", "0m", "0m", "13000m"] in lines
    assert ["general", "72", "5%", "100%", "100%", "50%", "1.5"] in lines
    [compared] = [line for line in result.out.splitlines() if line.startswith("Compared with the time before:")]
    assert "43.2 minutes a day shorter than in the control group" in compared
    assert any(line.startswith("Note: insufficient data: 4 episodes") for line in result.out.splitlines())


def test_what_a_cluster_is_named_is_no_markup(tmp_path: Path, empty: str) -> None:
    with open_records(url=empty, cluster="test", clock=SteppingClock(UNTIL)) as records:
        records.effect().put_episodes([an_episode(start=UNTIL - 7200, minutes=60, node="[red]n1[/red]", pool="[b]")])
    result = run(tmp_path, empty, *WEEK)
    assert "[red]n1[/red]  [b]" in result.out


def test_the_csv_holds_the_rates(tmp_path: Path, url: str) -> None:
    result = run(tmp_path, url, *WEEK, "--by", "pool,trigger", "-o", "csv")
    assert result.code == 0, result.err
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [(row["pool"], row["trigger"], row["hot"]) for row in rows] == [
        ("general", "", "1"),
        ("general", "alert", "2"),
        ("general", "forecast", "0"),
        ("general", "periodic", "1"),
    ]
    assert (rows[0]["discovery"], rows[1]["discovery"], rows[1]["effectiveness"]) == ("", "0.5", "0.5")
    assert (rows[1]["evictions"], rows[2]["prevented"], rows[2]["false_alarms"]) == ("3", "1", "1")


def test_a_file_gets_what_would_have_been_printed(tmp_path: Path, url: str) -> None:
    for output in ("json", "csv", "html"):
        file = tmp_path / f"report.{output}"
        silent = run(tmp_path, url, *WEEK, "-o", output, "--file", str(file))
        assert (silent.code, silent.out, silent.err) == (0, "", "")
        assert _without_now(file.read_text()) == _without_now(run(tmp_path, url, *WEEK, "-o", output).out)
    assert "<!doctype html>" in (tmp_path / "report.html").read_text()


def _without_now(text: str) -> str:
    return re.sub(r"made <time.*?</time>", "", text)


def test_clusters_of_one_database_are_reported_together(tmp_path: Path, url: str) -> None:
    fill(url, "other")
    assert run(tmp_path, url, *WEEK, "-o", "json").document["clusters"] == ["test"]
    both = run(tmp_path, url, *WEEK, "--all-clusters", "--by", "cluster", "-o", "json").document
    assert both["clusters"] == ["other", "test"]
    assert mistakes(both) == []
    assert both["total"]["hot"] == 8
    table = run(tmp_path, url, *WEEK, "--all-clusters").out
    assert table.startswith("Effect of evictions: clusters other, test, ")


# ---- when


def test_a_time_is_so_long_ago_or_a_date(tmp_path: Path, empty: str) -> None:
    def asked(*more: str) -> tuple[str, str]:
        document = run(tmp_path, empty, *more, "-o", "json").document
        return document["since"], document["until"]

    assert asked("--since", "2024-10-04T08:00+02:00", "--until", "2024-10-04T12:00") == (
        "2024-10-04T06:00:00+00:00",
        "2024-10-04T12:00:00+00:00",
    )
    since, until = asked("--since", "9d", "--until", "2d")
    assert since[11:] == f"{until[11:13]}:00:00+00:00"  # the pools' hot time is known by hours
    # longer than any clock; and nothing is told of the time to come
    assert asked("--since", "99999999999d", "--until", "9999-12-31")[0] == "1970-01-01T00:00:00+00:00"
    assert asked("--since", "0001-01-01", "--until", "9999-12-31")[1] < "9000"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--since yesterday", "--since: expected an age such as 7d, or a date or time such as 2026-11-01, got"),
        ("--since ", "--since: expected an age"),
        ("--until soon", "--until: expected an age"),
        ("--since 2d --until 3d", "--since 2d: expected a time before --until 3d"),
        ("--since 0s", "--since 0s: expected a time before now"),
        ("--since 2999-01-01", "--since 2999-01-01: expected a time before now"),
        ("--by colour", "--by: expected any of cluster, pool, strategy, trigger, separated by commas, got 'colour'"),
        ("--by pool,,trigger", "--by: expected any of"),
        ("--file report.html", "--file: expected with -o json, yaml, csv or html"),
        ("-o html --file none/report.html", "--file none/report.html: No such file or directory"),
    ],
)
def test_what_can_not_be_asked_is_one_line(tmp_path: Path, empty: str, more: str, message: str) -> None:
    result = run(tmp_path, empty, *more.split(" "))
    assert result.code == 4
    assert result.error.startswith(message)


def test_the_program_ends_with_its_exit_code_and_one_line(tmp_path: Path, empty: str) -> None:
    result = rebalancer(*arguments(tmp_path, empty, "--by", "colour"), cwd=tmp_path, cold=True)
    assert (result.code, result.out) == (4, "")
    assert result.error.startswith("Error: --by: expected any of")


# ---- what there is


def test_without_a_database_it_says_so_and_makes_none(tmp_path: Path) -> None:
    result = run(tmp_path, f"sqlite:///{tmp_path / 'none.db'}")
    assert result.code == 4
    assert "none.db: no such database; expected the database of a daemon that has run" in result.error
    assert not (tmp_path / "none.db").exists()


def test_a_database_that_is_behind_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "old.db").touch()
    result = run(tmp_path, f"sqlite:///{tmp_path / 'old.db'}")
    assert result.code == 4
    assert "run `rebalancer db upgrade`" in result.error


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path, "postgresql://rebalancer:secret@127.0.0.1:9/none")
    assert result.code == 5
    assert "secret" not in result.error


@pytest.mark.parametrize("output", ["table", "json", "csv", "html"])
def test_where_nothing_is_recorded_it_says_so(tmp_path: Path, empty: str, output: str) -> None:
    result = run(tmp_path, empty, *WEEK, "-o", output)
    assert result.code == 0, result.err
    if output == "table":
        assert result.out == "No records of cluster test, 2024-10-04 00:00 UTC to 2024-10-11 00:00 UTC.\n"
    elif output == "json":
        assert mistakes(result.document) == []
        assert (result.document["total"], result.document["lines"]) == (None, [])
    elif output == "csv":
        assert result.out.startswith("pool,discovery,eviction,effectiveness,hot,discovered,evicted_from,")
        assert len(result.out.splitlines()) == 1
    else:
        assert "no data for this time" in result.out


def test_it_only_reads_also_while_the_daemon_writes(tmp_path: Path, url: str) -> None:
    before = dump(tmp_path / "rebalancer.db")
    writer = sqlite3.connect(tmp_path / "rebalancer.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("DELETE FROM effect_days")
    try:
        result = run(tmp_path, url, *WEEK, "-o", "json")
    finally:
        writer.execute("ROLLBACK")
        writer.close()
    assert result.code == 0, result.err
    assert result.document["total"]["hot"] == 4
    assert dump(tmp_path / "rebalancer.db") == before


def dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_the_times_of_a_report_are_local_and_with_utc_in_utc(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        local, utc = (run(tmp_path, url, *WEEK, *more).out.splitlines()[0] for more in ((), ("--utc",)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "2024-10-04 09:00 JST to 2024-10-11 09:00 JST" in local
    assert "2024-10-04 00:00 UTC to 2024-10-11 00:00 UTC" in utc
