"""Write docs/examples/replay.html and replay.txt: a replay of public traces (`make replay`).

`REBALANCER_TRACES` names folders of recorded CPU traces (`timestamp,value`), separated by colons. A cluster of 50 nodes
is composed of them: its pods, rollouts and Jobs are those of the benchmark's synthetic cluster, and the CPU of each
service follows a trace, from a day of its own on. `--days` and `--nodes` make a smaller one.
"""

import argparse
import io
import os
import sys
from pathlib import Path

from bench.replays.traces import UNSET, composed, trace_folders
from rebalancer.bootstrap.recordings.replay import replay
from rebalancer.cli.common import parse_policy
from rebalancer.cli.output.progress import TerminalProgress
from rebalancer.cli.output.replay import print_replay, when
from rebalancer.cli.output.tables import Screen
from rebalancer.cli.output.times import use_utc
from rebalancer.replay.comparison.summary import summary_of
from rebalancer.replay.comparison.variants import Variant
from rebalancer.web.pages.replay_page import render_replay

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
POLICY = ROOT / "policies" / "balanced.yaml"


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
    with TerminalProgress() as progress:
        made = replay(
            composed(folders, nodes=wanted.nodes, days=wanted.days),
            policy,
            [Variant(label=POLICY.name, policy=policy, part="")],
            workers=os.cpu_count() or 1,
            progress=progress,
        )
    assert made is not None
    wanted.folder.mkdir(exist_ok=True)
    (wanted.folder / "replay.html").write_text(render_replay(made, now=made.end), encoding="utf-8")
    text = io.StringIO()
    os.environ["COLUMNS"] = "80"
    print_replay(Screen(file=text), summary_of(made, when)[1])
    (wanted.folder / "replay.txt").write_text(text.getvalue(), encoding="utf-8")
    sys.stdout.write(text.getvalue())


if __name__ == "__main__":
    main()
