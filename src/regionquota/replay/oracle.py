"""What one exact counter for the whole world would have answered to the very same requests."""

from collections.abc import Sequence
from heapq import heappop, heappush


def one_counter(sent: Sequence[float], until: Sequence[float], limit: int) -> bytearray:
    """1 for each request of one unit that is admitted, 0 for each that is not.

    Requests are in the order in which they were `sent` (ascending seconds); an admitted one holds its unit
    until `until`, whatever became of it in the system under test.
    """
    admitted = bytearray(len(sent))
    held: list[float] = []
    for at, now in enumerate(sent):
        while held and held[0] <= now:
            heappop(held)
        if len(held) < limit:
            heappush(held, until[at])
            admitted[at] = 1
    return admitted
