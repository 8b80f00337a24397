"""Plans carried out on families of clusters: `python -m bench plan [--family NAME] [--seeds N] [--verbose]`.

Each cluster runs the product's cycles, with the real ledger, over an executor that moves its pods as kube-scheduler
would (`plan_cluster`). Evictions are compared with a lower bound (`plan_bound`). Prints one JSON object a line; exit
code 1 when an aim is missed.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from bench.plan.cost import NODES, Cost, measure
from bench.plan.families import FAMILIES
from bench.plan.rounds import Result, carry_out

COOLED_AIM, EVICTIONS_AIM, OVER_TARGET_AIM = 0.95, 1.2, 0.01
PLAN_AIM_SECONDS = 2.0
RESOURCE_AIM = 1.25
"""Cost of a plan with two resources, in times of that with one."""
COST_ROUNDS = 3
SHOWN_NODES = 20
COST = "cost"
"""Name of the measurement of one plan's CPU, beside the families."""


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench plan", description=__doc__)
    parser.add_argument("--family", action="append", choices=(*FAMILIES, COST), help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, help="seeds of each family; default: 10, three from 1,000 nodes on")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes; default: 2")
    parser.add_argument("--nodes", type=int, default=NODES, help="of the cluster of `cost`")
    parser.add_argument("--verbose", action="store_true", help="hot nodes that stay, with their refusals, on stderr")
    return parser


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    args = options().parse_args()
    names = args.family or [*FAMILIES, COST]
    output = Output()
    jobs = [
        (name, seed)
        for name in names
        if name != COST
        for seed in range(args.first_seed, args.first_seed + (args.seeds or FAMILIES[name].seeds))
    ]
    # the longest first, so that no process ends alone
    jobs.sort(key=lambda job: FAMILIES[job[0]].seeds)
    results: list[Result] = []
    try:
        if COST in names:
            cost(output, args.nodes)
        for result in finished(jobs, workers=args.workers):
            results.append(result)
            if args.verbose:
                explain(result)
    except Exception as error:  # noqa: BLE001 - a failure is one line, no traceback
        print(f"plan: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    for name in names:
        if own := [each for each in results if each.family == name]:
            family_figures(output, name, sorted(own, key=lambda each: each.seed))
    if results:
        overall_figures(output, results)
    return int(output.missed)


def finished(jobs: Sequence[tuple[str, int]], *, workers: int) -> Iterator[Result]:
    """The results, in the order in which they are ready; progress on stderr where that is a terminal."""
    began, shows = time.monotonic(), sys.stderr.isatty()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=max(workers, 1), mp_context=context) as pool:
        for done, each in enumerate(as_completed([pool.submit(run, name, seed) for name, seed in jobs]), start=1):
            try:
                result = each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # the first failure ends the benchmark
                raise
            if shows:
                seconds = time.monotonic() - began
                print(f"\r{done} of {len(jobs)} clusters, {seconds:.0f} s ", end="", file=sys.stderr, flush=True)
            yield result
    if shows:
        print(file=sys.stderr)


def run(name: str, seed: int) -> Result:
    """One cluster of a family, in a process of its own."""
    try:
        return carry_out(name, FAMILIES[name], seed)
    except Exception as error:  # noqa: BLE001 - the same, with the name of its cluster
        raise RuntimeError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from None


def explain(result: Result) -> None:
    """Hot nodes that could have been cooled and were not, on stderr."""
    print(
        f"{result.family} {result.seed}: {result.cooled} of {result.coolable} cooled ({result.hot} hot), "
        f"{result.evictions} evictions for {result.bound} ({result.bound_of_all} for all), {result.landings} landings, "
        f"{result.returned} returned, {result.over_target} over target, {result.made_hot} made hot, "
        f"{result.pending} pending, {result.cycles} cycles, {result.cpu_seconds:.1f} CPU s",
        *(f"  {line}" for line in result.left[:SHOWN_NODES]),
        *([f"  and {len(result.left) - SHOWN_NODES} more"] if len(result.left) > SHOWN_NODES else []),
        sep="\n",
        file=sys.stderr,
    )


# ---- figures


class Output:
    """Prints figures, and remembers whether an aim was missed."""

    def __init__(self) -> None:
        self.missed = False

    def say(self, figure: str, value: float | None, unit: str, aim: str = "", holds: bool | None = None) -> None:
        """One line. Without an aim `holds` is null."""
        self.missed |= holds is False
        line = {"bench": "plan", "figure": figure, "value": None if value is None else round(value, 4), "unit": unit}
        print(json.dumps({**line, "aim": aim, "holds": holds}), flush=True)


def total(results: Sequence[Result], name: str) -> int:
    """Sum of a field."""
    return sum(int(getattr(each, name)) for each in results)


def ratio(of: float, by: float) -> float | None:
    """None where there is nothing to divide by."""
    return of / by if by else None


def family_figures(output: Output, name: str, results: Sequence[Result]) -> None:
    """Figures of one family; 5,000 nodes and the least possible evictions have aims of their own."""

    def say(figure: str, value: float | None, unit: str, aim: str = "", holds: bool | None = None) -> None:
        output.say(f"{name}: {figure}", value, unit, aim, holds)

    cooled, coolable = total(results, "cooled"), total(results, "coolable")
    share = ratio(cooled, coolable)
    say("clusters", len(results), "seeds")
    say("hot nodes", total(results, "hot"), "nodes")
    say("hot nodes that can be cooled", coolable, "nodes")
    has_aim = name == "plain" and share is not None
    say(
        f"cooled within {FAMILIES[name].rounds} rounds",
        share,
        "share",
        f">= {COOLED_AIM}" if has_aim else "",
        share is not None and share >= COOLED_AIM if has_aim else None,
    )
    say("no longer hot", ratio(total(results, "no_longer_hot"), coolable), "share")
    evictions, bound = total(results, "evictions"), total(results, "bound_of_all")
    if name == "least":
        most = bound * EVICTIONS_AIM
        say("evictions", evictions, "pods", f"<= {most:g} with all cooled", evictions <= most and cooled == coolable)
    else:
        say("evictions", evictions, "pods")
    say("lower bound of all", bound, "pods")
    say("evictions / lower bound of the cooled", ratio(evictions, total(results, "bound")), "x")
    for field, label in (
        ("landings", "landings"),
        ("returned", "landings on the node that was left"),
        ("over_target", "landings over the target"),
        ("made_hot", "nodes made hot"),
        ("pending", "replacements without a node"),
        ("cycles", "cycles"),
    ):
        say(label, total(results, field), {"made_hot": "nodes", "cycles": "cycles"}.get(field, "pods"))
    say("CPU of a cycle", sum(each.cpu_seconds for each in results) / total(results, "cycles"), "CPU s")


def overall_figures(output: Output, results: Sequence[Result]) -> None:
    """Figures over all clusters, with the aims."""
    cooled = ratio(total(results, "cooled"), total(results, "coolable"))
    evictions = ratio(total(results, "evictions"), total(results, "bound"))
    over = ratio(total(results, "over_target"), total(results, "landings"))
    output.say("clusters", len(results), "seeds")
    output.say("hot nodes cooled", cooled, "share", f">= {COOLED_AIM}", cooled is None or cooled >= COOLED_AIM)
    output.say(
        "evictions / lower bound",
        evictions,
        "x",
        f"<= {EVICTIONS_AIM}",
        evictions is None or evictions <= EVICTIONS_AIM,
    )
    named = {each.family for each in results}
    own = [[each for each in results if each.family == name] for name in sorted(named)]
    shares = [share for each in own if (share := ratio(total(each, "cooled"), total(each, "coolable"))) is not None]
    output.say("hot nodes cooled, mean of the families", statistics.fmean(shares) if shares else None, "share")
    output.say("hot nodes cooled, worst family", min(shares, default=None), "share")
    output.say("landings over the target", over, "share", f"<= {OVER_TARGET_AIM}", (over or 0.0) <= OVER_TARGET_AIM)
    for field, label, unit in (
        ("returned", "landings on the node that was left", "pods"),
        ("made_hot", "nodes made hot", "nodes"),
    ):
        count = total(results, field)
        output.say(label, count, unit, "0", count == 0)


def cost(output: Output, nodes: int) -> None:
    """CPU of finding, steering and planning on so many nodes with 30 pods each, each plan in a process of its own."""
    variants: list[dict[str, Any]] = [{}, {"with_memory": True}, {"leaving": nodes // 100}]
    runs: list[list[Cost]] = [[] for _ in variants]
    for _ in range(COST_ROUNDS):
        for options, done in zip(variants, runs, strict=True):
            with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
                done.append(pool.submit(measure, nodes, **options).result())
    measured = runs[0]
    seconds, with_memory, leaving = (statistics.median(each.cpu_seconds for each in done) for done in runs)
    first = measured[0]
    output.say(f"{COST}: pods", first.pods, "pods")
    output.say(f"{COST}: hot nodes", first.hot, "nodes")
    output.say(f"{COST}: moves planned", first.moves, "pods")
    output.say(f"{COST}: hot nodes that the plan cools", ratio(first.at_target, first.hot), "share")
    output.say("find and plan", seconds, "CPU s", f"<= {PLAN_AIM_SECONDS:g}", seconds <= PLAN_AIM_SECONDS)
    times = with_memory / seconds
    output.say("with thresholds of memory", times, "times", f"<= {RESOURCE_AIM:g}", times <= RESOURCE_AIM)
    output.say("with 1% of the nodes leaving", leaving / seconds, "times")


if __name__ == "__main__":
    sys.exit(main())
