"""`rebalancer db`: upgrade the schema, show the contents, prune what is no longer needed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.cli.common import say
from rebalancer.cli.invocation import CLUSTER, TABLES, Invocation, options, settings_for
from rebalancer.cli.state import demo_database
from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.cli.output.tables import Screen

app = typer.Typer(help="Manage the database of cycles, evictions and outcomes.", no_args_is_help=True)


@app.command()
@options("database")
def upgrade(invocation: Invocation) -> None:
    """Create the tables, or migrate them to this version. No records are lost."""
    from rebalancer.bootstrap.wiring.database import database_shown, database_upgrade

    revision = database_upgrade(invocation.settings)
    say(f"{database_shown(invocation.settings)}: at revision {revision}")


@app.command()
@options("database", *TABLES)
def prune(
    invocation: Invocation,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Age from which records are dropped, for example 90d. [default: the longest limit window of any "
            "cluster plus a day for the ledger; effect.detailRetention of each policy for details]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the records.")] = False,
) -> None:
    """Drop records that are no longer needed.

    These are ledger records that no limit counts any more, and old details. The daemon does this once an hour.

    Details are cycles with their findings and refusals, hot episodes and assessments; at least three days of them are
    kept. Daily counts are kept for good, evictions and pool hours for 400 days, forecasts and their
    outcomes for 90 days.
    """
    from rebalancer.bootstrap.wiring.database import database_prune, database_shown
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.times import moment
    from rebalancer.policy.schema.types import parse_duration

    try:
        seconds = None if older_than is None else parse_duration(older_than)
    except ValueError as error:
        raise ConfigError(f"--older-than: {error}, got {older_than!r}") from None
    found = database_prune(invocation.settings, older_than=seconds, dry_run=dry_run)
    names = ("before", "entries", "scopes", "clusters", "forecasts", "forecast_outcomes", "details")

    def draw(screen: "Screen") -> None:
        clusters = f", ready reports of {', '.join(found.clusters)}" if found.clusters else ""
        details = ", ".join(f"{rows} {table}" for table, rows in found.details.items()) or "none"
        say(
            f"{database_shown(invocation.settings)}: {'would drop' if dry_run else 'dropped'} {found.entries} entries "
            f"from before {moment(found.before)}, {found.scopes} scopes, {found.forecasts} forecasts, "
            f"{found.forecast_outcomes} periods of forecast outcomes{clusters}; details: {details}"
        )

    invocation.show(lambda: Shown(document={"dryRun": dry_run, **pick(found, *names)}, draw=draw, version="1"))


@app.command("accept-restore")
@options(*CLUSTER)
def accept_restore(invocation: Invocation) -> None:
    """Accept a database that was restored from a backup.

    Or one that was promoted without its last commits, or that has records of a cluster that was rebuilt under its old
    name.

    The Lease knows how many evictions were reserved; a ledger that has fewer evicts nothing. Missing ones are counted
    again where Events of the cluster or replacements show them. While others are missing, which no limit counts,
    evictions in the cluster are paused for the longest limit window; `rebalancer resume` ends the pause.
    """
    from rebalancer.bootstrap.commands.restore import accept_restore
    from rebalancer.cli.output.times import ahead

    accepted = accept_restore(invocation.policy, invocation.settings)
    if accepted.problem:
        say(f"Events can't be read: {accepted.problem}")
    for each in accepted.counted:
        say(f"{each.full_name} from {each.node or 'a node that is not known'}: {each.reason}")
    pause = "" if accepted.paused_until is None else f" The pause ends {ahead(accepted.paused_until)}"
    say(
        f"accepted: the database has {accepted.had} evictions, {accepted.missing} are missing, "
        f"{len(accepted.counted)} of them are counted again.{pause}"
    )


@app.command()
@options("database", *TABLES)
def status(invocation: Invocation) -> None:
    """Show the schema, rows and last cycle of the database.

    And evictions whose outcome is unknown.

    Without a database in this folder, the database of the last demo is shown.
    """
    from rebalancer.bootstrap.wiring.database import database_exists, database_status
    from rebalancer.cli.output.formats import Shown
    from rebalancer.cli.output.json import pick
    from rebalancer.cli.output.tables import plain_table, print_paragraph
    from rebalancer.model.notation.figures import counted

    settings = invocation.settings
    unnamed = "database" not in settings.model_fields_set
    if unnamed and not database_exists(settings) and (demo := demo_database()).exists():
        settings = settings_for(database=f"sqlite:///{demo}")
    found = database_status(settings)
    names = ("revision", "head", "current", "rows", "last_cycle")

    def draw(screen: "Screen") -> None:
        state = "up to date" if found.current else f"newest is {found.head}: run `rebalancer db upgrade`"
        print_paragraph(screen, f"{found.url_shown}:", f"revision {found.revision or 'none'}, {state}")
        table = plain_table("", "TABLE", "ROWS")
        for name, rows in found.rows.items():
            table.add_row(name, str(rows))
        screen.print(table)
        if found.last_cycle is not None:
            print_paragraph(screen, "Last cycle:", _cycle_line(found.last_cycle))
        if found.unreconciled:
            evictions = counted(found.unreconciled, "eviction")
            print_paragraph(screen, evictions, "with an unknown outcome; the next run reconciles them.")

    document = {"url": found.url_shown, **pick(found, *names), "unreconciled": found.unreconciled}
    invocation.show(lambda: Shown(document=document, draw=draw))


def _cycle_line(columns: Mapping[str, Any]) -> str:
    """`cluster demo, manual, 5m ago (14:05 CET), 12 nodes, 3 hot, 6 evicted; note`"""
    from rebalancer.cli.output.times import ago, moment
    from rebalancer.model.notation.figures import counted

    parts = [
        f"cluster {columns['cluster']}",
        f"{columns['trigger']}{', dry run' if columns['dry_run'] else ''}",
        f"{ago(columns['started_at'])} ago ({moment(columns['started_at'])})",
    ]
    if columns["nodes"] is not None:
        parts += [counted(columns["nodes"], "node"), f"{columns['hot_nodes']} hot"]
    parts += [f"{count} {outcome}" for outcome, count in columns["outcomes"].items()]
    if columns["finished_at"] is None:
        parts.append("not finished")
    said = [each for each in (columns["stopped_message"], *columns["notes"]) if each]
    return "; ".join([", ".join(parts), *said])
