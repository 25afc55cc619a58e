"""DemandHistory in memory."""

from collections.abc import Collection, Mapping, Sequence

from regionquota.core.forecast import Counted, Past
from regionquota.core.quota import QuotaKey


class MemoryDemandHistory:
    def __init__(self) -> None:
        self._hours: dict[QuotaKey, dict[float, Counted]] = {}

    async def add(self, hour: float, counted: Mapping[QuotaKey, Counted]) -> None:
        for key, one in counted.items():
            hours = self._hours.setdefault(key, {})
            hours[hour] = hours.get(hour, Counted()).plus(one)

    async def recall(self, keys: Collection[QuotaKey], hours: Collection[float]) -> Sequence[Past]:
        return [
            Past(key, min(known), {hour: known[hour] for hour in hours if hour in known})
            for key in keys
            if (known := self._hours.get(key))
        ]

    async def forget(self, before: float, most: int) -> int:
        old = sorted(((hour, key) for key, hours in self._hours.items() for hour in hours if hour < before))[:most]
        for hour, key in old:
            del self._hours[key][hour]
            if not self._hours[key]:
                del self._hours[key]
        return len(old)
