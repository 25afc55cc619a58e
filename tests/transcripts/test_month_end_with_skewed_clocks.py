from tests.core.builders import at
from tests.transcripts.conftest import Tell

from regionquota.core.periods import UTC_MONTHS, epoch_of
from regionquota.core.quota import Kind, QuotaKey

CALLS = QuotaKey("acme", "calls")
JULY = at(2026, 7)


def test_month_end_with_skewed_clocks(tell: Tell) -> None:
    with tell(
        "The month ends, on clocks that differ",
        """100 calls a month. us is in July already when it gives headroom away, of which nothing is used in July. The
        clock of eu is 90 seconds behind: there it is still June, and June's calls are nearly all made. So the document
        says in which month headroom was freed, and eu may not raise its slice before its own month is that one. The
        limit holds in each month, whatever the clocks say; being behind only makes eu wait.""",
        key=CALLS,
        kind=Kind.CONSUMABLE,
        time=JULY - 30,
    ) as stage:
        stage.clocks["eu"] = stage.clock_of(skew=-90)
        stage.open(100, eu=40, us=60)
        coordinator = stage.coordinator()
        stage.use("eu", 40)
        stage.use("us", 55)
        stage.show()

        stage.pass_time(40)
        stage.tell("", "July has begun in us; in eu it is 23:58:40 of the last day of June")
        assert stage.use("us", 5)
        assert not stage.use("eu", 20)
        stage.attend()
        coordinator.round()
        stage.agents["us"].synchronise().finish()
        assert not stage.agents["eu"].relist().error
        stage.tell("agent eu", "reads that it owns more, freed in July: in June it may not raise its slice")
        assert not stage.use("eu", 20)
        stage.show()
        assert 40 == stage.slice("eu") < stage.owned("eu")

        stage.pass_time(80)
        stage.tell("", "July has begun in eu, too")
        stage.agents["eu"].begin(stage.agents["eu"].follower.settle()).finish()
        assert stage.use("eu", 20)
        stage.show()
        june = epoch_of(Kind.CONSUMABLE, JULY - 1, UTC_MONTHS)
        used = {
            month: sum(store.counters[CALLS, month].used for store in stage.stores.values())
            for month in (june, june + 1)
        }
        stage.tell("", f"calls made in June: {used[june]} of 100; in July so far: {used[june + 1]} of 100")
        assert used == {june: 95, june + 1: 25}
