"""What a product service imports: reserve capacity, do the work, commit or release.

    async with Client("http://quota.eu.internal:8080") as quota:
        async with quota.reserved("acme", "vcpu", 20) as hold:
            hold.use(await create_machines(20))

Nothing here knows the server's code.
"""

from regionquota.client.answers import Adjusted, HeldLine, Reservation
from regionquota.client.blocks import Block
from regionquota.client.calls import Line, Priority
from regionquota.client.client import Client
from regionquota.client.errors import Conflict, Denied, NotFound, QuotaError, Refused, Unavailable
from regionquota.client.holds import Hold

__all__ = [
    "Adjusted",
    "Block",
    "Client",
    "Conflict",
    "Denied",
    "HeldLine",
    "Hold",
    "Line",
    "NotFound",
    "Priority",
    "QuotaError",
    "Refused",
    "Reservation",
    "Unavailable",
]
