"""The machine's clock."""

import time


class SystemClock:
    def now(self) -> float:
        """To the microsecond, which is what Postgres keeps: a time read back equals the time written."""
        return round(time.time(), 6)
