"""What the totals of any source must be."""

from collections.abc import Container, Mapping, Sequence

from regionquota.core.quota import MAX_AMOUNT, QuotaKey, is_identifier
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import MAX_TOTALS


def check_totals(
    source: str, rows: Sequence[tuple[object, object, object, object]], resources: Container[str]
) -> Mapping[QuotaKey, int]:
    """`rows` are tenant, resource, scope and total; those of other resources are passed over.

    Raises `SourceUnavailable` that names the row: what is wrong in one part is not to be trusted in the others.
    """
    if len(rows) > MAX_TOTALS:
        raise SourceUnavailable(f"{source} gave more than {MAX_TOTALS} totals: split it by resource")
    found: dict[QuotaKey, int] = {}
    for place, (*names, total) in enumerate(rows):
        texts = [name for name in names if isinstance(name, str) and is_identifier(name)]
        if len(texts) != len(names):
            raise SourceUnavailable(f"{source}: totals[{place}] needs a tenant_id, a resource and a scope, got {names}")
        if isinstance(total, bool) or not isinstance(total, int) or not 0 <= total <= MAX_AMOUNT:
            raise SourceUnavailable(
                f"{source}: totals[{place}].total must be an integer from 0 to {MAX_AMOUNT}, got {total!r}"
            )
        key = QuotaKey(*texts)
        if key in found:
            raise SourceUnavailable(f"{source}: totals[{place}] names {key} again: give one total for each quota")
        if key.resource in resources:
            found[key] = total
    return found
