import asyncio
import time

import pytest

from regionquota.simulator import virtual


def test_a_day_passes_at_once_and_is_measured_as_a_day() -> None:
    async def a_day() -> float:
        began = time.monotonic()
        await asyncio.sleep(86_400)
        return time.monotonic() - began

    assert 86_400 == virtual.run(a_day())


def test_what_is_due_at_the_same_instant_happens_in_the_order_in_which_it_was_asked_for() -> None:
    async def names() -> list[int]:
        told: list[int] = []

        async def tell(number: int) -> None:
            await asyncio.sleep(1.0)
            told.append(number)

        await asyncio.gather(*(tell(number) for number in range(50)))
        return told

    assert list(range(50)) == virtual.run(names())


def test_a_timeout_comes_after_its_time() -> None:
    async def waits() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3.5)
        return asyncio.get_running_loop().time()

    assert 3.5 == virtual.run(waits())


def test_a_sleep_that_was_cancelled_passes_no_time() -> None:
    async def cancels() -> float:
        sleeper = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        sleeper.cancel()
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert 2 == virtual.run(cancels())


def test_who_waits_for_nobody_is_told_so() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="everybody waits"):
        virtual.run(waits_for_ever())


def test_an_error_ends_the_run_and_with_it_whoever_is_left() -> None:
    cleaned_up = []

    async def background() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaned_up.append(True)

    async def fails() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()
        raise ValueError("as arranged")

    with pytest.raises(ValueError, match="as arranged"):
        virtual.run(fails())
    assert [True] == cleaned_up
