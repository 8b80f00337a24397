"""A report as JSON and as CSV."""

import csv
import io

from rebalancer.cli.output.json import as_text
from rebalancer.effect.document import to_json
from rebalancer.effect.report import Report

CSV_COLUMNS = (
    *("hot", "discovered", "evicted_from", "assessed", "cooled", "discovery", "eviction", "effectiveness", "evictions"),
    *("relief_planned_cores", "relief_measured_cores", "hot_node_minutes", "prevented", "false_alarms", "too_late"),
)


def json_text(report: Report, clusters: list[str]) -> str:
    """The JSON document. Its schema is docs/reference/report.schema.json."""
    return as_text({**to_json(report), "clusters": clusters})


def csv_text(report: Report) -> str:
    """A line for each group. Shares are 0..1, empty of nothing; an empty name is of nodes in no pool, or of episodes
    that were not found."""
    out = io.StringIO()
    writer = csv.DictWriter(out, (*report.by, *CSV_COLUMNS), lineterminator="\n")
    writer.writeheader()
    for line in report.lines:
        counts = line.counts
        shares = {name: getattr(line, name).share for name in ("discovery", "eviction", "effectiveness")}
        writer.writerow(
            {
                **{name: line.key[name] for name in report.by},
                **{name: getattr(counts, name.removesuffix("_cores")) for name in CSV_COLUMNS if name not in shares},
                **shares,
            }
        )
    return out.getvalue()
