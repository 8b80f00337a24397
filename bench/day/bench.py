"""A day of a living cluster, with the product and without: `python -m bench day [--seeds N] [--hours H] [--verbose]`.

Both days of a seed have the same cluster, load and changes (`day_cluster`). Figures come from the lab's own account
(`day_account`). Prints one JSON object a line; exit code 1 when an aim is missed.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from bench.day.cluster import Size
from bench.day.run import Course, live
from bench.day.unserved import seconds_by_us

HOT_AIM, IDLE_AIM = 0.15, 0.05


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench day", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="days; default: 1")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24.0, help="the part of the day that is lived; default: 24")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes; default: 2")
    parser.add_argument("--verbose", action="store_true", help="hours and idle cycles on stderr")
    return parser


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    args = options().parse_args()
    size = replace(Size(), hours=args.hours)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    context = multiprocessing.get_context("spawn")
    output = Output()
    with ProcessPoolExecutor(max_workers=max(args.workers, 1), mp_context=context) as pool:
        # the days with cycles take longer
        jobs = {(seed, acts): pool.submit(live, seed, size, acts=acts) for acts in (True, False) for seed in seeds}
        try:
            for seed in seeds:
                alone, ours = jobs[seed, False].result(), jobs[seed, True].result()
                figures(output, alone, ours)
                if args.verbose:
                    explain(alone, ours)
        except Exception as error:  # noqa: BLE001 - a failure is one line, no traceback
            pool.shutdown(cancel_futures=True)
            print(f"day: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    return int(output.missed)


class Output:
    """Prints figures, and remembers whether an aim was missed."""

    def __init__(self) -> None:
        self.missed = False

    def say(
        self, seed: int, figure: str, value: float | None, unit: str, aim: str = "", holds: bool | None = None
    ) -> None:
        """One line. Without an aim `holds` is null."""
        self.missed |= holds is False
        line = {"bench": "day", "seed": seed, "figure": figure, "value": None if value is None else round(value, 4)}
        print(json.dumps({**line, "unit": unit, "aim": aim, "holds": holds}), flush=True)


def figures(output: Output, alone: Course, ours: Course) -> None:
    """All figures of one seed."""

    def say(figure: str, value: float | None, unit: str, aim: str = "", holds: bool | None = None) -> None:
        output.say(ours.seed, figure, value, unit, aim, holds)

    before, after, cycles = alone.day, ours.day, ours.cycles
    share = after.hot_minutes / before.hot_minutes if before.hot_minutes else None
    idle = [each for each in cycles if each.idle]
    could = sum(each.coolable > 0 for each in cycles)
    say("hot node-minutes without", before.hot_minutes, "min")
    say("hot node-minutes with", after.hot_minutes, "min")
    say("hot node-minutes with / without", share, "share", f"<= {HOT_AIM}", share is None or share <= HOT_AIM)
    say("evictions", after.evictions, "pods")
    say("evictions that the API server refused", after.refused, "pods")
    broken = len(after.broken_budgets)
    say("budgets under their floor with an eviction in flight", broken, "budgets", "0", broken == 0)
    say("minutes of budgets under their floor without", before.low_budget_minutes, "min")
    say("minutes of budgets under their floor with", after.low_budget_minutes, "min")
    for day, which in ((before, "without"), (after, "with")):
        spans = [span for each in day.unserved.values() for span in each]
        say(f"seconds without a Ready pod {which}", sum(until - since for since, until in spans), "s")
    seconds = sum(seconds_by_us(after.unserved, after.exposed, before.unserved).values())
    say("seconds without a Ready pod caused by us", seconds, "s", "0", seconds == 0)
    over = len(after.over_limit)
    say("services moved more often than their limit", over, "services", "0", over == 0)
    say("most evictions of a service", after.most_of_a_service, "pods")
    say("cycles", len(cycles), "cycles")
    say("cycles that could have cooled a node", could, "cycles")
    idle_share = len(idle) / len(cycles) if cycles else 0.0
    say(
        "cycles without an eviction that could have cooled a node",
        idle_share,
        "share",
        f"<= {IDLE_AIM}",
        idle_share <= IDLE_AIM,
    )
    say("the same, of those that could", len(idle) / could if could else None, "share")
    for code, count in codes(ours).most_common():
        say(f"hot nodes in these cycles: {code}", count, "nodes")
    say("duration with", ours.seconds, "s")
    say("duration without", alone.seconds, "s")


def codes(course: Course) -> Counter[str]:
    """Reason code -> nodes that it kept hot in cycles without an eviction although they could be cooled."""
    found: Counter[str] = Counter()
    for each in course.cycles:
        if each.idle:
            found.update(each.codes)
    return found


def explain(alone: Course, ours: Course) -> None:
    """The hours of both days, and the cycles that did nothing, on stderr."""
    for hour, (before, after) in enumerate(zip(alone.day.hot_by_hour, ours.day.hot_by_hour, strict=True)):
        print(f"seed {ours.seed} hour {hour:2}: {before:5} hot node-minutes without, {after:5} with", file=sys.stderr)
    first = ours.cycles[0].at if ours.cycles else 0.0
    for each in ours.cycles:
        if each.idle or each.stopped:
            codes_text = ", ".join(f"{code} {count}" for code, count in sorted(each.codes.items()))
            hour = (each.at - first) / 3600
            print(f"  {hour:5.2f} h: {each.coolable} of {each.hot} hot, {codes_text} {each.stopped}", file=sys.stderr)
    print(f"  broken budgets {ours.day.broken_budgets}, over limits {ours.day.over_limit}", file=sys.stderr)
    by_us = seconds_by_us(ours.day.unserved, ours.day.exposed, alone.day.unserved)
    print(f"  seconds without a Ready pod caused by us {by_us}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
