"""`regionquota jump`: demand that another region's idle slice serves, with etcd far away."""

from regionquota.bench.jump import JumpOptions, JumpResult, Jumps
from regionquota.bench.load import Measured
from regionquota.cli.dev import QUICK
from regionquota.embedded import scratch_directory


async def test_a_jump_is_served_by_the_region_that_is_idle() -> None:
    said: list[str] = []
    with scratch_directory() as directory:
        found = await Jumps(JumpOptions(jumps=2, rtt_ms=20, wait_ms=20_000), QUICK, directory, said.append).run()
    assert (0, 2) == (found.denied, len(found.waits.latencies_s))
    assert "jump 1 of 2" in said


def test_the_bound_is_three_round_trips_and_a_tenth_of_a_second() -> None:
    waits = Measured(latencies_s=[0.3, 0.4, 0.5, 1.0])
    told = JumpResult(JumpOptions(jumps=5), waits, denied=1).plain()
    assert (100, 400, 5, 4, 2) == tuple(
        told[name] for name in ("rtt_ms", "bound_ms", "jumps", "served", "within_bound")
    )
    assert {"p50": 500.0, "p90": 1000.0, "p99": 1000.0, "max": 1000.0} == told["served_ms"]


def test_nobody_was_served() -> None:
    told = JumpResult(JumpOptions(jumps=1, rtt_ms=0), Measured(), denied=1).plain()
    assert (0, 0, 0.0, None) == (
        told["served"],
        told["within_bound"],
        told["served_ms"]["max"],
        told["served_round_trips_p50"],
    )
