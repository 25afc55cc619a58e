"""What `regionquota bench` runs: durable reserves over HTTP beside pgbench, on one server, in one run.

`jump` is what `regionquota jump` runs.
"""

from regionquota.bench.run import Bench, Options, Result

__all__ = ["Bench", "Options", "Result"]
