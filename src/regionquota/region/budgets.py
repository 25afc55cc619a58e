"""Which quotas a request is charged to beside those that it names: parents, the global one, the region's own."""

from collections.abc import Callable, Sequence

from regionquota.core.commands import Charge
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import GLOBAL_SCOPE, REGION_SCOPE, QuotaKey, Region, home_of


class Budgets:
    """`policy_of` says what is known of a quota, None where it is not defined: such a quota is not charged."""

    def __init__(self, me: Region, policy_of: Callable[[QuotaKey], QuotaPolicy | None]) -> None:
        self._here = REGION_SCOPE + me
        self._policy_of = policy_of

    def complete(self, charges: Sequence[Charge]) -> tuple[Charge, ...]:
        """`charges`, and those that follow from them. A quota that several follow to is charged with their sum."""
        named = {charge.key for charge in charges}
        implied: dict[QuotaKey, Charge] = {}
        for place, charge in enumerate(charges):
            if charge.via:
                continue
            for key in self._above(charge.key):
                if key not in named:
                    known = implied.get(key, Charge(key, 0))
                    implied[key] = Charge(key, known.amount + charge.amount, (*known.via, place))
        return (*charges, *implied.values())

    def above(self, key: QuotaKey) -> tuple[QuotaKey, ...]:
        """The quotas that are charged with `key`."""
        return tuple(charge.key for charge in self.complete([Charge(key, 1)])[1:])

    def _above(self, key: QuotaKey) -> Sequence[QuotaKey]:
        here = QuotaKey(key.tenant, key.resource, self._here)
        if key.scope == GLOBAL_SCOPE:
            return () if self._policy_of(here) is None else (here,)
        if home_of(key.scope) is not None:
            return ()
        found: list[QuotaKey] = []
        scope = key.scope
        while scope != GLOBAL_SCOPE:
            policy = self._policy_of(QuotaKey(key.tenant, key.resource, scope))
            scope = GLOBAL_SCOPE if policy is None or policy.parent is None else policy.parent
            above = QuotaKey(key.tenant, key.resource, scope)
            if above == key or above in found:
                break  # parents that go round in a circle
            found.append(above)
        found.append(here)
        return [above for above in found if self._policy_of(above) is not None]
