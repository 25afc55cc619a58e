"""What was seen before, of hundreds of millions of digests, in a fixed amount of memory."""

from typing import Final

_BITS: Final = 28


class Seen:
    """A bit for each digest modulo 2^28. Two that share a bit count once: the count is never too high.

    At ten million digests it is some 2 % too low.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray(1 << _BITS - 3)

    def add(self, digest: int) -> bool:
        """Whether it is new."""
        at = digest & (1 << _BITS) - 1
        byte, bit = at >> 3, 1 << (at & 7)
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True

    def merge(self, other: "Seen") -> None:
        whole = int.from_bytes(self._bits) | int.from_bytes(other._bits)  # noqa: SLF001 - of its own kind
        self._bits = bytearray(whole.to_bytes(len(self._bits)))

    def count(self) -> int:
        return int.from_bytes(self._bits).bit_count()
