"""Totals by resource, kept up to date by differences: a scrape must not look at every quota."""

from collections.abc import Mapping

from regionquota.core.quota import QuotaKey


class Sums:
    """Of `width` figures per quota."""

    def __init__(self, width: int) -> None:
        self._nothing = (0,) * width
        self._known: dict[QuotaKey, tuple[int, ...]] = {}
        self._totals: dict[str, tuple[int, ...]] = {}

    @property
    def totals(self) -> Mapping[str, tuple[int, ...]]:
        return self._totals

    def of(self, resource: str) -> tuple[int, ...]:
        return self._totals.get(resource, self._nothing)

    def put(self, key: QuotaKey, figures: tuple[int, ...]) -> None:
        """Say what `key` has now."""
        before = self._known.get(key, self._nothing)
        self._known[key] = figures
        total = self.of(key.resource)
        self._totals[key.resource] = tuple(
            sum_ + new - old for sum_, new, old in zip(total, figures, before, strict=True)
        )
