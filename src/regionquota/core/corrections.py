"""Changes of usage that no reservation stands behind: adjustments, and what sources have metered."""

from regionquota.core import counter as counters
from regionquota.core.balances import Balances, Loaded, Writes
from regionquota.core.commands import (
    Adjust,
    Adjusted,
    Adjustment,
    Invalid,
    Meter,
    Metered,
    Outcome,
    Pledge,
    Pledged,
    Reading,
    RequestConflict,
)
from regionquota.core.entries import Cause, EntryKind
from regionquota.core.quota import MAX_AMOUNT, QuotaKey


class Corrections:
    def __init__(self, loaded: Loaded, writes: Writes, balances: Balances, now: float) -> None:
        self._adjustments = loaded.adjustments
        self._readings = loaded.readings
        self._writes = writes
        self._balances = balances
        self._now = now

    def adjust(self, command: Adjust) -> Outcome:
        request = (command.key.tenant, command.request_id)
        known = self._adjustments.get(request)
        if known is not None:
            if known.digest != command.digest:
                return RequestConflict(command.request_id)
            return Adjusted(known, replayed=True)
        if unknown := self._balances.unknown(command.keys):
            return unknown
        holding = self._balances.known(command.key)
        used = holding.counter.used
        if -command.delta > used:
            return Invalid("delta", f"delta {command.delta} would take used below 0: it is {used}")
        if command.delta > 0 and not all(self._can_charge(key, command.delta) for key in command.keys):
            return Invalid("delta", f"usage would pass {MAX_AMOUNT}: it is {used}")
        kind = EntryKind.RECONCILE if command.reconciles else EntryKind.ADJUST
        cause = Cause(kind, self._now, request_id=command.request_id, reason=command.reason)
        for key in command.keys:
            self._change(key, command.delta, cause)
        holding = self._balances.turned(command.key)
        adjustment = Adjustment(
            key=command.key,
            epoch=holding.epoch,
            request_id=command.request_id,
            digest=command.digest,
            delta=command.delta,
            reason=command.reason,
            used=holding.counter.used,
            available=holding.counter.available,
            at=self._now,
        )
        self._adjustments[request] = adjustment
        self._writes.adjustments.append(adjustment)
        return Adjusted(adjustment)

    def meter(self, command: Meter) -> Outcome:
        """Totals are absolute, so a word that is repeated or overtaken adds nothing."""
        if unknown := self._balances.unknown(command.keys):
            return unknown
        holding = self._balances.known(command.key)
        name = (command.key, command.source, command.incarnation)
        known = self._readings.get(name)
        if known is not None and command.sequence <= known.sequence:
            return Metered(known, holding, replayed=True)
        counted = 0 if known is None else known.total
        added = command.total - counted
        if added < 0:
            return Invalid(
                "total",
                f"total {command.total} is below {counted}, which {command.source} reported before: "
                "totals never fall; a source that counts from 0 again takes a new incarnation",
            )
        if not all(self._can_charge(key, added) for key in command.keys):
            return Invalid("total", f"usage would pass {MAX_AMOUNT}: it is {holding.counter.used}")
        if added:
            reason = f"{command.source}/{command.incarnation} no. {command.sequence}"
            for key in command.keys:
                self._change(key, added, Cause(EntryKind.METER, self._now, reason=reason))
        holding = self._balances.turned(command.key)
        reading = Reading(
            key=command.key,
            source=command.source,
            incarnation=command.incarnation,
            sequence=command.sequence,
            total=command.total,
            epoch=holding.epoch,
            added=added,
            at=self._now,
        )
        self._readings[name] = reading
        self._writes.readings[name] = reading
        return Metered(reading, holding)

    def pledge(self, command: Pledge) -> Outcome:
        return self._balances.unknown(command.keys) or Pledged(self._balances.pledge(command.key))

    def _can_charge(self, key: QuotaKey, amount: int) -> bool:
        return counters.can_charge(self._balances.known(key).counter, amount)

    def _change(self, key: QuotaKey, delta: int, cause: Cause) -> None:
        """A quota that was defined later than the usage began may have less to take back than the one it goes with."""
        holding = self._balances.turned(key)
        before = holding.counter
        if delta < 0:
            changed = counters.refund(before, min(-delta, before.used))
        else:
            changed = counters.charge(before, delta, lenient=holding.lenient)
        self._balances.change(key, holding.epoch, changed, cause)
