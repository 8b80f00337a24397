"""`rebalancer advise jobs` and `rebalancer advise requests` with recordings that were made, not read."""

import csv
import io
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from rebalancer.bootstrap.recordings import replay as replays
from rebalancer.model.recordings.recording import Gap, Recording
from tests.programs.cli import Result
from tests.programs.in_process import run_here
from tests.replay.builders import Recorded, RecordedPod, policy, recording

WIDTH = 80
Call = Callable[..., Result]

JOBS = [RecordedPod(name=f"batch-{at}", service="batch", kind="Job", cpu=4_500.0) for at in range(2)]
CRON_JOBS = [RecordedPod(name=f"web-{at}", kind="CronJob", cpu=1_900.0, request=100.0, begins=at) for at in range(5)]
OTHERS = [RecordedPod(name=f"idle-{at}", service="idle", node=at, cpu=500.0, request=5_000.0) for at in (1, 2)]
QUIET = [RecordedPod(name="idle", service="idle", cpu=500.0)]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command over a recording of these pods, which is asked for with the times of its options."""
    path = tmp_path / "policy.yaml"
    document = policy(guards={"minReplicas": 100}).model_dump(mode="json", by_alias=True, exclude_unset=True)
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("REBALANCER_HISTORY_DIR", str(tmp_path / "history"))

    def of(what: str, pods: list[RecordedPod], *words: str, nodes: int = 3, gaps: tuple[Gap, ...] = ()) -> Result:
        def read(policy: object, settings: object, *, start: float, end: float, **_: Any) -> Recording:
            assert end - start == pytest.approx(7 * 86_400, abs=1)
            return replace(recording(Recorded(nodes=nodes, pods=pods)), gaps=gaps)

        monkeypatch.setattr(replays, "recorded", read)
        done = run_here(["advise", what, "-f", str(path), "--workers", "1", *words], columns=WIDTH)
        assert done.code == 0, done.err
        return done

    return of


def flat(text: str) -> str:
    return " ".join(text.split())


def patch_of(line: str) -> Any:
    """The patch at the end of a line."""
    return msgspec.json.decode(shlex.split(line)[-1] if line.startswith("kubectl") else line[line.index("{") :])


def test_jobs_are_shown_with_what_they_hold_and_their_patch(call: Call) -> None:
    text = call("jobs", JOBS).out
    assert "Jobs that keep nodes hot in cluster test: " in text
    assert "Pods of 1 Job hold 1.9 hot node-hours." in flat(text)
    (row,) = [line.split() for line in text.splitlines() if line.startswith("shop/batch")]
    assert row[:4] == ["shop/batch", "Job", "1.9", "1"]
    assert row[5] == "1"
    assert float(row[4]) < 1.9
    begin = "In the manifest of Job NAMESPACE/NAME: "
    (patch,) = [line for line in text.splitlines() if line.startswith(begin)]
    assert patch_of(patch)["spec"]["template"]["metadata"]["annotations"] == {"rebalancer.dev/evict-job": "true"}
    document = call("jobs", JOBS, "-o", "json").document
    assert document["schemaVersion"] == "2"
    assert (document["cluster"], document["unchanged"]["evictions"], document["allEvictable"]["evictions"]) == (
        "test",
        0,
        1,
    )
    assert document["blocked"] == []
    (job,) = document["jobs"]
    assert (job["kind"], job["name"], job["patch"]) == ("Job", "batch", patch_of(patch))
    assert job["heldNodeHours"] > job["evictable"]["hotNodeHours"]
    (line,) = csv.DictReader(io.StringIO(call("jobs", JOBS, "-o", "csv").out))
    assert line["name"] == "batch"


def test_what_keeps_nodes_hot_next_is_a_sentence(call: Call) -> None:
    night = [replace(each, name=f"night-{each.name}", node=1, begins=12.0) for each in JOBS]
    text = flat(call("jobs", [*JOBS, *night]).out)
    begins = r"Kept hot then: [\d.]+ by NoNodeWithHeadroom, [\d.]+ by StabilizationWindow. NoNodeWithHeadroom: shop/"
    assert re.search(begins, text), text


def test_requests_are_shown_with_what_they_save_and_their_patch(call: Call) -> None:
    text = call("requests", [*CRON_JOBS, *OTHERS]).out
    assert "If 1 service had the proposed requests:" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("shop/web")]
    assert row[:4] == ["shop/web", "5", "100m", "1900m"]
    (patch,) = [line for line in text.splitlines() if line.startswith("kubectl")]
    assert shlex.split(patch)[:8] == ["kubectl", "-n", "shop", "patch", "cronjob", "web", "--type", "merge"]
    spec = patch_of(patch)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec == {"resources": {"requests": {"cpu": "1900m"}}}
    document = call("requests", [*CRON_JOBS, *OTHERS], "-o", "json").document
    (service,) = document["services"]
    assert (service["requestMillicores"], service["proposedMillicores"], service["pods"]) == (100, 1_900, 5)
    assert service["proposed"] == document["allProposed"]
    assert service["patch"] == patch_of(patch)


def test_a_gap_of_the_recording_is_printed(call: Call) -> None:
    gap = Gap(text="Requests of 3 pods are unknown.", pods=3)
    for what, pods in (("jobs", JOBS), ("requests", [*CRON_JOBS, *OTHERS])):
        assert "Gap: Requests of 3 pods are unknown." in flat(call(what, pods, gaps=(gap,)).out)
        (line,) = call(what, pods, "-o", "json", gaps=(gap,)).document["gaps"]
        assert line["pods"] == 3


def test_patches_that_save_nothing_are_in_the_document_alone(call: Call) -> None:
    text = call("jobs", JOBS, nodes=1).out
    assert "shop/batch" in text
    assert "In the manifest" not in text
    (job,) = call("jobs", JOBS, "-o", "json", nodes=1).document["jobs"]
    assert job["patch"]


def test_a_recording_without_a_cause_is_a_sentence(call: Call) -> None:
    figures = "With the policy there are 0 hot node-hours and 0 evictions."
    assert f"No pod of a Job keeps a node hot. {figures}" in flat(call("jobs", QUIET).out)
    none = "No service uses far more CPU than it requests on hot nodes."
    assert f"{none} {figures}" in flat(call("requests", QUIET).out)
    assert call("requests", QUIET, "-o", "json").document["allProposed"] is None


def test_no_row_is_longer_than_80_columns(call: Call) -> None:
    for text in (call("jobs", JOBS).out, call("requests", [*CRON_JOBS, *OTHERS]).out):
        rows = [line for line in text.splitlines() if not line.startswith(("kubectl", "In the manifest"))]
        assert max(map(len, rows)) <= WIDTH


def test_times_that_are_no_span_are_named_before_anything_is_read(call: Call, tmp_path: Path) -> None:
    done = run_here(["advise", "jobs", "-f", str(tmp_path / "policy.yaml"), "--since", "1h", "--until", "2h"])
    assert done.code == 4
    assert "--since 1h: expected a time before --until 2h" in done.err
