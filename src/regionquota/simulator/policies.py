"""Which policies there are, and how each is played."""

from collections.abc import Callable, Mapping
from typing import Final

from regionquota.core.policy import QuotaPolicy
from regionquota.explorer.logs import quiet
from regionquota.simulator import rivals, virtual
from regionquota.simulator.demand import Workload
from regionquota.simulator.deployment import Deployment
from regionquota.simulator.events import cuts
from regionquota.simulator.outcome import Outcome
from regionquota.simulator.scenario import Scenario
from regionquota.simulator.settings import settings_of

ABOUT: Final[Mapping[str, str]] = {
    "oracle": "one exact counter for the whole world, that everybody reaches at once",
    "static": "each region has the same share for ever",
    "periodic": "this product's planner, by its rounds alone",
    "ours": "this product as it is shipped: rounds, claims from the pool, and help at once for who runs short",
    "leases": "leases of capacity in proportion to what each region asks for, as Doorman describes it",
    "pull": "whoever runs out pulls half of what the richest has left, as bounded counters do",
}
WAITING: Final = (
    "Callers wait for room with periodic and ours only; the others answer at once, so that these two may admit more "
    "than the oracle."
)


def play(policy: str, scenario: Scenario, work: Workload, on_bin: Callable[[int], None] = lambda _: None) -> Outcome:
    """`on_bin` hears of the bins of those that take a while."""
    if policy in {"ours", "periodic"}:
        return _ours(scenario, work, on_bin, fast_paths=policy == "ours")
    return rivals.play(work, _rule(policy, scenario, work))


def _ours(scenario: Scenario, work: Workload, on_bin: Callable[[int], None], *, fast_paths: bool) -> Outcome:
    async def go() -> Outcome:
        return await Deployment(work, scenario, settings_of(scenario.coordinator), fast_paths=fast_paths).play(on_bin)

    with quiet():
        return virtual.run(go())


def _rule(policy: str, scenario: Scenario, work: Workload) -> rivals.Rule:
    regions, cut = len(work.regions), cuts(work.happenings)
    far = max(part.round_trip_s for part in scenario.regions.values())
    quota = scenario.quota
    fills = QuotaPolicy(normal_fill_percent=quota.normal_fill_percent, low_fill_percent=quota.low_fill_percent)
    match policy:
        case "oracle":
            return rivals.OneCounter(work.limit, fills)
        case "static":
            return rivals.Slices(work.limit, regions, fills)
        case "leases":
            return rivals.ProportionalShare(work.limit, regions, work.bin_s, cut, fills)
        case "pull":
            return rivals.PullOnShortfall(work.limit, regions, far, cut, fills)
        case _:
            raise ValueError(f"no such policy: {policy}")
