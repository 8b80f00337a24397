"""Descheduler policies inside the manifests that carry them: ConfigMaps, Helm values, HelmReleases, Applications.

Lines before a policy are replaced by empty ones, so that the lines in messages are those of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy.descheduler.document import API_VERSION, KIND
from rebalancer.policy.descheduler.intervals import go_seconds, shortest_gap
from rebalancer.policy.source import fields_of, text_of

VALUES = "Helm values"
CHART_KEY, CHART_VERSION = "deschedulerPolicy", "deschedulerPolicyAPIVersion"
"""Values of the descheduler's chart."""
FOREIGN: Mapping[str, tuple[str, str]] = {
    "KubeDescheduler": (
        "operator.openshift.io",
        "OpenShift's KubeDescheduler names profiles of its operator; import the policy that the operator writes: "
        "oc get configmap cluster -n openshift-kube-descheduler-operator -o yaml | rebalancer policy import -",
    ),
    "DeschedulerConfiguration": (
        "descheduler",
        "koordinator's DeschedulerConfiguration is not imported: its LowNodeLoad reads koordinator's own agent; "
        "write a policy with rebalancer policy init",
    ),
    "Descheduler": (
        "deckhouse.io",
        "Deckhouse's Descheduler names strategies of its module; import the policy that the module writes: "
        "kubectl get configmap descheduler-policy -n d8-descheduler -o yaml | rebalancer policy import -",
    ),
}
"""Kind -> the group of its apiVersion, and why it is refused."""
NAMES = (KIND, CHART_KEY, *FOREIGN)
"""Every file with a policy has one of these names."""
TEMPLATE = "{{"
RENDERED = "render it (a chart with helm template), and import the ConfigMap"
RENDER = f"expressions of a template: {RENDERED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPolicy:
    """A policy in a manifest."""

    form: str
    """Kind of the manifest, or `Helm values`."""
    line: int
    data: bytes = b""
    """The policy as a file of its own."""
    refused: str = ""
    """Why it is not imported; empty where that is for the importer to say."""
    interval: float | None = None
    """Seconds between two runs of the descheduler; None where the manifest does not say."""


def policies_in(data: bytes, *, source: str) -> list[FoundPolicy]:
    """Every policy of a file, in its order. Raises ConfigError for what is not YAML."""
    if not any(name.encode() in data for name in NAMES):
        return []
    try:
        return list(_Search(data.decode()).found())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = RENDER if TEMPLATE.encode() in data else error.problem or error.context
        raise ConfigError(f"{source}:{mark.line + 1 if mark else 1}: not YAML: {why}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source}:1: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source}:1: nested too deeply") from None


def only_policy_in(data: bytes, *, source: str) -> FoundPolicy:
    """The only policy of a file; a file without one as it is. Raises ConfigError for a policy of another program, and
    for several policies."""
    try:
        found = policies_in(data, source=source)
    except ConfigError:
        found = []  # the importer says what is wrong
    if len(found) > 1:
        lines = " and ".join(str(each.line) for each in found)
        raise ConfigError(f"{source}: expected one policy, got {len(found)}, at lines {lines}: split the file")
    if not found:
        return FoundPolicy(form=KIND, line=1, data=data)
    if found[0].refused:
        raise ConfigError(f"{source}:{found[0].line}: {found[0].refused}")
    return found[0]


@dataclass(slots=True)
class _Search:
    """Walks through the documents of a text; aliased nodes are visited once."""

    text: str
    visited: set[int] = field(default_factory=set)

    def found(self, form: str = "") -> Iterator[FoundPolicy]:
        """`form` of a manifest around the text."""
        for root in yaml.compose_all(self.text, Loader=yaml.SafeLoader):
            if not isinstance(root, yaml.ScalarNode):
                yield from self._inside(root, form)

    def _inside(self, node: yaml.Node, form: str) -> Iterator[FoundPolicy]:
        if id(node) in self.visited:
            return
        self.visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from self._in_mapping(node, form)
        elif isinstance(node, yaml.SequenceNode):
            for each in node.value:
                yield from self._inside(each, form)
        elif isinstance(node, yaml.ScalarNode) and any(name in node.value for name in NAMES):
            yield from self._in_text(node, form)

    def _in_mapping(self, node: yaml.MappingNode, form: str) -> Iterator[FoundPolicy]:
        fields = fields_of(node)
        kind, version = text_of(fields.get("kind")), text_of(fields.get("apiVersion"))
        line = node.start_mark.line + 1
        group, refused = FOREIGN.get(kind, ("", ""))
        if kind == KIND:
            refused = f"the policy has {RENDER}" if _is_template(node) else ""
            yield FoundPolicy(form=form or KIND, line=line, data=self._cut(node), refused=refused)
        elif refused and version.partition("/")[0] == group:
            yield FoundPolicy(form=kind, line=line, refused=refused)
        elif isinstance(policy := fields.get(CHART_KEY), yaml.MappingNode):
            yield self._of_chart(policy, fields, form or VALUES)
        else:
            for each in fields.values():
                yield from self._inside(each, kind if kind and version and kind != "List" else form)

    def _in_text(self, node: yaml.ScalarNode, form: str) -> Iterator[FoundPolicy]:
        """Of a text inside: the key of a ConfigMap, or values as one text."""
        before = "\n" * (node.start_mark.line + (node.style in ("|", ">")))
        try:
            yield from _Search(before + node.value).found(form)
        except yaml.YAMLError:
            return  # a script or a README

    def _of_chart(self, policy: yaml.MappingNode, values: Mapping[str, yaml.Node], form: str) -> FoundPolicy:
        """The chart writes apiVersion and kind."""
        line = policy.start_mark.line + 1
        if not policy.value:
            refused = f"{CHART_KEY} is empty: the chart reads a ConfigMap that is made elsewhere; import that one"
            return FoundPolicy(form=form, line=line, refused=refused)
        names = fields_of(policy)
        if not names.keys() & {"profiles", "strategies"}:
            refused = f"{CHART_KEY} has no profiles, so those of the chart apply: {RENDERED}"
            return FoundPolicy(form=form, line=line, refused=refused)
        if _is_template(policy):
            return FoundPolicy(form=form, line=line, refused=f"{CHART_KEY} has {RENDER}")
        version = text_of(values.get(CHART_VERSION)) or API_VERSION
        added = [f"{key}: {value}" for key, value in (("apiVersion", version), ("kind", KIND)) if key not in names]
        return FoundPolicy(form=form, line=line, data=self._cut(policy, added), interval=_interval(values))

    def _cut(self, node: yaml.MappingNode, added: Sequence[str] = ()) -> bytes:
        """The text of a mapping on its own lines, with more keys."""
        begin = node.start_mark if node.flow_style else node.value[0][0].start_mark  # after an anchor
        inner = self.text[begin.index : node.end_mark.index]
        indent = " " * begin.column
        if node.flow_style:
            inner = "{" + "".join(f"{each}, " for each in added) + inner.partition("{")[2]
        else:
            inner = "\n".join([inner, *(indent + each for each in added)])
        return ("\n" * begin.line + indent + inner).encode()


def _interval(values: Mapping[str, yaml.Node]) -> float | None:
    """Seconds between two runs, by values of the chart and their defaults."""
    try:
        if text_of(values.get("kind")) == "Deployment":
            return go_seconds(text_of(values.get("deschedulingInterval")) or "5m")
        return shortest_gap(text_of(values.get("schedule")) or "*/2 * * * *")
    except ValueError:
        return None


def _is_template(node: yaml.Node) -> bool:
    """Whether values are expressions of a template. Without quotes, YAML takes `{{NAME}}` for a mapping with a mapping
    as its key. A comment with an expression is none."""
    waiting, visited = [node], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        if isinstance(each, yaml.ScalarNode) and TEMPLATE in each.value:
            return True
        if isinstance(each, yaml.MappingNode):
            if any(isinstance(key, yaml.MappingNode) for key, _ in each.value):
                return True
            waiting += [inner for pair in each.value for inner in pair]
        elif isinstance(each, yaml.SequenceNode):
            waiting += each.value
    return False
