"""Write docs/examples: a replay of public traces as a page and as text, and the advice on its Jobs and requests
(`make replay`).

`REBALANCER_TRACES` names folders of recorded CPU traces (`timestamp,value`), separated by colons. A cluster of 50 nodes
is composed of them: its pods, rollouts and Jobs are those of the benchmark's synthetic cluster, and the CPU of each
service follows a trace, from a day of its own on. `--days` and `--nodes` make a smaller one.
"""

import argparse
import io
import os
import sys
from functools import partial
from pathlib import Path

from bench.replays.traces import UNSET, composed, trace_folders
from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.cli.common import parse_policy
from rebalancer.cli.output.advised_workloads import jobs_shown, requests_shown
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.replay import print_replay, when
from rebalancer.cli.output.tables import Screen
from rebalancer.cli.output.times import use_utc
from rebalancer.replay.advice.jobs import advise_jobs
from rebalancer.replay.advice.requests import advise_requests
from rebalancer.replay.comparison.summary import summary_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.web.pages.replay_page import render_replay

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
POLICY = ROOT / "policies" / "balanced.yaml"
MOST = 5
"""Default of `advise --most`."""


def main() -> None:
    """Write the examples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=EXAMPLES)
    wanted = parser.parse_args()
    folders = trace_folders()
    if not folders:
        sys.exit(UNSET)
    use_utc()
    policy = parse_policy(POLICY.read_bytes(), path=POLICY)
    recording = composed(folders, nodes=wanted.nodes, days=wanted.days)
    with TerminalProgress() as progress:
        run = partial(replay, recording, policy, workers=os.cpu_count() or 1, progress=progress)
        made = run([Variant(label=POLICY.name, policy=policy, part="")])
        jobs = advise_jobs(recording, policy, run=run, most=MOST)
        requests = advise_requests(recording, policy, run=run, most=MOST)
    assert made is not None
    assert jobs is not None
    assert requests is not None
    os.environ["COLUMNS"] = "80"
    wanted.folder.mkdir(exist_ok=True)
    for name, shown in (("jobs", jobs_shown(jobs)), ("requests", requests_shown(requests))):
        advice = io.StringIO()
        shown.draw(Screen(file=advice))
        (wanted.folder / f"advise-{name}.txt").write_text(advice.getvalue(), encoding="utf-8")
    (wanted.folder / "replay.html").write_text(render_replay(made, now=made.end), encoding="utf-8")
    text = io.StringIO()
    print_replay(Screen(file=text), summary_of(made, when)[1])
    (wanted.folder / "replay.txt").write_text(text.getvalue(), encoding="utf-8")
    sys.stdout.write(text.getvalue())


if __name__ == "__main__":
    main()
