"""The outcome of each file of a folder of manifests."""

from collections.abc import Sequence
from dataclasses import dataclass

from rebalancer.model.errors import ConfigError
from rebalancer.policy.descheduler.importer import import_policy
from rebalancer.policy.descheduler.manifests import FoundPolicy, policies_in
from rebalancer.policy.descheduler.notes import DECIDE, Difference
from rebalancer.policy.loader import load_policy

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
"""Of manifests."""
IMPORTED, REFUSED, WITHOUT = "imported", "refused", "no policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOutcome:
    """One policy of a file, or a file without one."""

    file: str
    outcome: str
    """`imported`, `refused` or `no policy`."""
    form: str = ""
    """Kind of the manifest; empty without a policy."""
    line: int | None = None
    strategies: tuple[str, ...] = ()
    why: str = ""
    """Why it is refused."""
    policy: str = ""
    """The RebalancerPolicy."""
    differences: tuple[Difference, ...] = ()

    @property
    def to_decide(self) -> int:
        """How many of the differences the user must decide."""
        return sum(each.kind == DECIDE for each in self.differences)


def import_manifest(
    data: bytes, *, source: str, cluster: str | None = None, prometheus_url: str | None = None
) -> Sequence[ManifestOutcome]:
    """Of each policy of a file, or that it has none."""
    try:
        found = policies_in(data, source=source)
    except ConfigError as error:
        return [ManifestOutcome(file=source, outcome=REFUSED, why=_one_line(error))]
    outcomes = [_imported(each, source, cluster, prometheus_url) for each in found]
    return outcomes or [ManifestOutcome(file=source, outcome=WITHOUT)]


def _imported(found: FoundPolicy, source: str, cluster: str | None, prometheus_url: str | None) -> ManifestOutcome:
    try:
        if found.refused:
            raise ConfigError(found.refused)
        made = import_policy(
            found.data, source=source, cluster=cluster, prometheus_url=prometheus_url, interval=found.interval
        )
    except ConfigError as error:
        return ManifestOutcome(file=source, outcome=REFUSED, form=found.form, line=found.line, why=_one_line(error))
    strategies = load_policy(made.text.encode(), source=source).strategies
    return ManifestOutcome(
        file=source,
        outcome=IMPORTED,
        form=found.form,
        line=found.line,
        strategies=tuple(each.name for each in strategies),
        policy=made.text,
        differences=made.differences,
    )


def _one_line(error: ConfigError) -> str:
    return "; ".join(str(error).splitlines())
