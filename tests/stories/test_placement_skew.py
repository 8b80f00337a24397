"""Why one node fills up again and again: a large image that it has and others don't."""

import time
from collections import Counter
from pathlib import Path

import yaml

from rebalancer.lab import Lab, workload
from tests.programs.cli import rebalancer
from tests.stories.scenarios.stage import HIGH, a_scenario, burner, service, stories_policy

IMAGE, GIB = "registry.example/report:2.4", 2**30
SIZE = 1.8 * GIB
NODES = tuple(f"node-{number}" for number in range(10))
HAVE_IT = NODES[:4]
HOT = HAVE_IT[0]
PODS = 120
STORY_SECONDS = 300.0


def test_pods_heap_up_where_their_image_is_and_explain_names_it(tmp_path: Path) -> None:
    crowd = workload(
        "report",
        namespace="batch",
        kind="Job",
        place=dict.fromkeys(HAVE_IT, PODS // 4),
        completions=2000,
        run_seconds=60.0,
        cpu=0.05,
        cpu_request="50m",
        memory_request="64Mi",
        image=IMAGE,
        image_size=int(SIZE),
    )
    cluster = a_scenario(
        NODES,
        crowd,
        service("web", dict.fromkeys(NODES, 1)),
        burner("burner", HOT, 11.0),
        pull_bytes_per_second=100 * 2**20,
    )
    # `explain` runs in a process of its own, by the machine's clock: the story ends now
    with Lab.start(cluster, stepped=True, start_time=time.time() - STORY_SECONDS) as lab:
        lab.clock.sleep(STORY_SECONDS)
        landed = Counter(each.node for each in lab.log.entries("bound") if each.name.startswith("report-"))
        # several generations have come and gone: all of them went where the image is, not to the emptier nodes
        assert landed.total() >= 2 * PODS
        assert set(landed) == set(HAVE_IT)
        assert lab.log.entries("pulled") == ()

        lab.write_kubeconfig(tmp_path / "config")
        policy = tmp_path / "policy.yaml"
        policy.write_text(yaml.safe_dump(stories_policy(lab)))
        explained = rebalancer(
            "explain", "node", HOT, "-f", policy, "--kubeconfig", tmp_path / "config", "-o", "json", cwd=tmp_path
        )
        assert lab.truth.hot(HIGH / 100).keys() == {HOT}
        here, everywhere = (len(lab.cluster.pods(workload="report", node=name)) for name in (HOT, ""))
    assert explained.code == 0, explained.err
    assert explained.document["node"]["hot"] is True
    heap = explained.document["attractions"][0]
    assert (heap["service"], heap["skewed"]) == ("batch/report", True)
    # finished ones stay in the list of pods
    assert heap["podsHere"] <= here
    assert heap["pods"] <= everywhere
    assert heap["decisivePlugin"] == "ImageLocality"
    (image,) = [each for each in heap["plugins"] if each["name"] == "ImageLocality"]
    # 1.8 GiB on 4 of 10 nodes count 737.28 MiB; nothing below 23 MiB, 100 at 1000 MiB; over and above the median, 0
    points = int(100 * (SIZE / 2**20 * 4 / 10 - 23) / (1000 - 23))
    assert (image["here"], image["median"], image["scoreLead"]) == (points, 0, points) == (73, 0, 73)
    (shown,) = heap["images"]
    assert (shown["name"], shown["bytes"], shown["nodesWithIt"], shown["here"]) == (IMAGE, int(SIZE), 4, True)
