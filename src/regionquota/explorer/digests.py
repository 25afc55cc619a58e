"""Digests of durable state, to tell how many different ones were reached."""

from regionquota.explorer.checks import Checks, RegionChecks


def digest_of_documents(checks: Checks) -> int:
    """What etcd holds: documents and the regions' records."""
    documents = tuple(
        (one.limit, one.pool, *one.slices.items(), *((m.source, m.target, m.amount) for m in one.moves), one.epoch)
        for _, one in checks.documents.values()
    )
    records = tuple(
        (one.record.weight, one.record.status, one.record.frozen is None) for one in checks.records.values()
    )
    return hash((documents, records))


def digest_of_region(known: RegionChecks) -> int:
    holdings = tuple(
        (
            held.epoch,
            counter.slice,
            counter.available,
            counter.reserved,
            counter.used,
            counter.overdraft_issued - counter.overdraft_repaid,
        )
        for held in known.held.values()
        for counter in (held.counter,)
    )
    holds = tuple((held.state, held.amount, held.actual) for held in known.store.reservations.values())
    return hash((holdings, holds))
