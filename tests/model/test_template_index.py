"""The index of templates: extended template by template it equals one that is made at once."""

import random

import msgspec

from rebalancer.kube.snapshot.pod_templates import PodTemplates
from rebalancer.kube.snapshot.records import Pod
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.template_index import PodTemplateOutline, TemplateIndex
from tests.kube.builders import a_pod

PAIRS = [(key, value) for key in "abc" for value in "xyz"]


def random_outline(chance: random.Random) -> PodTemplateOutline:
    labels = dict(chance.sample(PAIRS, chance.randrange(4)))
    return PodTemplateOutline(labels, chance.choice([b"", b"1", b"2"]), chance.random() < 0.3)


def test_an_index_after_random_extensions_equals_the_rebuild() -> None:
    chance = random.Random(1)
    outlines = [random_outline(chance) for _ in range(1_000)]
    kept, done = TemplateIndex(), 0
    while done < len(outlines):
        more = chance.randrange(1, 20)
        kept, done = kept.extended(outlines[done : done + more]), done + more
        now = outlines[:done]
        assert kept.count == len(now)
        for pair in PAIRS:
            assert kept.may_have(pair).tolist() == [at for at, each in enumerate(now) if pair in each.labels.items()]
        for text in (b"1", b"2"):
            assert kept.affinities.get(text, ()) == tuple(at for at, each in enumerate(now) if each.affinity == text)
        assert kept.spreading == tuple(at for at, each in enumerate(now) if each.spreads)


def pod(name: str) -> Pod:
    return msgspec.convert(a_pod(name, metadata={"labels": {"name": name}}), Pod)


def test_only_templates_that_came_are_read_for_the_index() -> None:
    templates, read = PodTemplates(), list[int]()

    def indexed() -> PodTemplateTable:
        table = templates.table()
        whole = table.outline
        table.outline = lambda at: read.append(at) or whole(at)  # type: ignore[method-assign,func-returns-value]
        assert table.index.count == len(table)
        return table

    for name in ("a", "b"):
        templates.index_of(pod(name), of_daemonset=False)
    indexed()
    templates.index_of(pod("c"), of_daemonset=False)
    assert indexed().index.may_have(("name", "c")).tolist() == [2]
    assert read == [0, 1, 2]


def test_a_template_that_cannot_be_read_says_why() -> None:
    templates = PodTemplates()
    container = {"name": "c", "resources": {"requests": {"cpu": "a lot"}}}
    broken = msgspec.convert(a_pod("a", spec={"containers": [container]}), Pod)
    for _ in range(2):  # a watch delivers the same object again
        assert templates.index_of(broken, of_daemonset=False) == 0
    assert templates.index_of(pod("b"), of_daemonset=False) == 1
    assert len(templates) == len(templates.table()) == 2
    assert [cause.partition(": ")[0] for cause in templates.causes] == ["request of cpu", ""]
    assert templates.columns().unreadable.tolist() == [True, False]
    assert templates.table()[0].cpu_request_millicores == 0.0
