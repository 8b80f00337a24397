"""`rebalancer db`: bring the schema up to date, see what is in the database, drop what nothing needs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rebalancer.bootstrap.database import (
    database_exists,
    database_prune,
    database_shown,
    database_status,
    database_upgrade,
)
from rebalancer.cli.common import (
    DEMO_DATABASE,
    DatabaseOption,
    Output,
    OutputOption,
    print_json,
    say,
    settings_for,
    stdout_console,
)
from rebalancer.constraints.limits import clock_time
from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.types import parse_duration

app = typer.Typer(help="The database of cycles, evictions and their outcomes.", no_args_is_help=True)


@app.command()
def upgrade(database: DatabaseOption = None) -> None:
    """Create the tables, or bring them to this version. Nothing that is recorded gets lost."""
    settings = settings_for(database=database)
    revision = database_upgrade(settings)
    say(f"{database_shown(settings)}: at revision {revision}")


@app.command()
def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Drop what was counted, found and assessed longer ago, for example 90d. [default: what the ledger "
            "counted as far as the limits of any cluster look back, and a day; details as each policy says in "
            "effect.detailRetention]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be dropped.")] = False,
    output: OutputOption = Output.TABLE,
    database: DatabaseOption = None,
) -> None:
    """Drop what no limit can see any more, and details that are too old. Runs do so by themselves, once an hour.

    Details are cycles with what they found and refused, hot episodes and assessments, of at least three days. A day's
    counts stay, evictions and hours for 400 days, forecasts for 90.
    """
    try:
        seconds = None if older_than is None else parse_duration(older_than)
    except ValueError as error:
        raise ConfigError(f"--older-than: {error}, got {older_than!r}") from None
    settings = settings_for(database=database)
    found = database_prune(settings, older_than=seconds, dry_run=dry_run)
    if output is Output.JSON:
        print_json(
            {
                "schemaVersion": "1",
                "dryRun": dry_run,
                "before": found.before,
                "entries": found.entries,
                "scopes": found.scopes,
                "clusters": list(found.clusters),
                "forecasts": found.forecasts,
                "details": dict(found.details),
            }
        )
        return
    silent = f", reports of {', '.join(found.clusters)}" if found.clusters else ""
    details = ", ".join(f"{rows} {table}" for table, rows in found.details.items()) or "nothing"
    say(
        f"{database_shown(settings)}: {'would drop' if dry_run else 'dropped'} {found.entries} entries from before "
        f"{clock_time(found.before)}, {found.scopes} scopes, {found.forecasts} old forecasts{silent}; "
        f"of details {details}"
    )


@app.command()
def status(database: DatabaseOption = None, output: OutputOption = Output.TABLE) -> None:
    """What is in the database: schema revision, rows, the last cycle, evictions without an outcome.

    Without a database of our own yet, that of the last demo in this folder.
    """
    settings = settings_for(database=database)
    unnamed = "database" not in settings.model_fields_set
    if unnamed and not database_exists(settings) and Path(DEMO_DATABASE).exists():
        settings = settings_for(database=f"sqlite:///{DEMO_DATABASE}")
    found = database_status(settings)
    if output is Output.JSON:
        print_json(
            {
                "schemaVersion": "1",
                "url": found.url_shown,
                "revision": found.revision,
                "head": found.head,
                "current": found.current,
                "rows": dict(found.rows),
                "lastCycle": found.last_cycle,
                "unsettled": found.unsettled,
            }
        )
        return
    console = stdout_console(markup=False)
    state = "up to date" if found.current else f"newest is {found.head}: run `rebalancer db upgrade`"
    console.print(f"{found.url_shown}: revision {found.revision or 'none'}, {state}")
    table = Table("TABLE", "ROWS", box=None, pad_edge=False, header_style="dim")
    for name, rows in found.rows.items():
        table.add_row(name, str(rows))
    console.print(table)
    if found.last_cycle is not None:
        shown = ", ".join(f"{key} {value}" for key, value in found.last_cycle.items() if value not in (None, "", []))
        console.print(f"Last cycle: {shown}")
    if found.unsettled:
        console.print(f"{found.unsettled} eviction(s) without a known outcome: the next run settles them.")
