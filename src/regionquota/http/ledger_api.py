"""The usage ledger over HTTP: why a tenant's usage is what it is, page by page."""

import base64
import re
from typing import Any, Final

from aiohttp import web

from regionquota.core.periods import period_end, start_of
from regionquota.core.quota import Kind, Region
from regionquota.errors import InvalidRequest
from regionquota.http.decoding import asked, named, page_size, write_time
from regionquota.http.problems import Answer
from regionquota.ledger_files import fields_of
from regionquota.ledger_ports import LedgerLine, LedgerPosition, UsageLedger
from regionquota.region.follower import Follower

MAX_XID: Final = 2**64 - 1
MAX_ID: Final = 2**63 - 1
_CURSOR: Final = re.compile(r"([0-9]{1,20})\.([0-9]{1,19})")


class LedgerApi:
    def __init__(self, region: Region, ledger: UsageLedger, follower: Follower) -> None:
        self._region = region
        self._ledger = ledger
        self._follower = follower

    async def page(self, request: web.Request) -> Answer:
        """`next` is where to go on, now or later; `more` false: for now nothing is behind it."""
        tenant = named(request, "tenant", "tenant_id")
        resource, scope = (asked(request, name) for name in ("resource", "scope"))
        after = read_cursor(request.query["after"]) if "after" in request.query else LedgerPosition()
        limit = page_size(request)
        page = await self._ledger.page(tenant, after, limit, resource=resource, scope=scope)
        body = {
            "tenant_id": tenant,
            "region": self._region,
            "entries": [self._describe(line) for line in page.lines],
            "next": write_cursor(page.following),
            "more": page.more,
        }
        return Answer(200, body, {"Cache-Control": "no-store"})

    def _describe(self, line: LedgerLine) -> dict[str, Any]:
        fields = fields_of(line)
        del fields["tenant_id"]
        return fields | {"period": self._period(line)}

    def _period(self, line: LedgerLine) -> dict[str, str] | None:
        """In the quota's time zone as it is now; None for kinds without periods, and for quotas not heard of."""
        stored = self._follower.known(line.entry.key)
        if stored is None or stored.allocation is None or stored.allocation.kind is not Kind.CONSUMABLE:
            return None
        calendar = stored.allocation.policy.calendar
        end = period_end(Kind.CONSUMABLE, line.entry.epoch, calendar)
        assert end is not None
        start = start_of(line.entry.epoch, calendar)
        return {"start": write_time(start.timestamp()), "end": write_time(end.timestamp())}


def write_cursor(position: LedgerPosition) -> str:
    """Opaque to callers: what is in it may change with any release."""
    return base64.urlsafe_b64encode(f"{position.written_by}.{position.id}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> LedgerPosition:
    """Raises `InvalidRequest` for what is no cursor of ours."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError:
        plain = ""
    if found := _CURSOR.fullmatch(plain):
        position = LedgerPosition(int(found[1]), int(found[2]))
        if position.written_by <= MAX_XID and position.id <= MAX_ID and write_cursor(position) == text:
            return position
    raise InvalidRequest("after", "after must be what next said in an earlier page; leave it out to begin at the first")
