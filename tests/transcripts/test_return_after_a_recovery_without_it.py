from tests.transcripts.conftest import Tell


async def test_return_after_a_recovery_without_it(tell: Tell) -> None:
    with tell(
        "A region comes back after a recovery that went on without it",
        """etcd is restored from a snapshot, and us is lost at the same time. Nobody knows what us was granted since the
        snapshot was taken: so all that no other region holds counts as spent by us, which is more than the snapshot
        says. When us comes back its database still believes in the first history. It obeys the eviction before it
        admits anything, and what it really has in use is sorted out from there.""",
    ) as stage:
        stage.open(100, eu=50, us=20)
        stage.use("eu", 30)
        stage.use("us", 20)
        stage.pass_time(5)
        snapshot = stage.etcd.copy(stage.clock)
        stage.tell("", "a snapshot of etcd is taken")
        assert (25, True) == stage.claim("us", 25)
        assert stage.use("us", 20)
        stage.agents["eu"].relist()
        stage.agents["eu"].look_at_history()
        stage.show()

        stage.lose("us")
        stage.pass_time(60)
        stage.restore_etcd(snapshot)
        stage.pass_time(20)
        stage.agents["eu"].relist()
        stage.agents["eu"].look_at_history()
        stage.show()
        assert 20 == stage.owned("us"), "it has spent 40"

        assert not await stage.operator.recover()
        stage.operator.evict("us", "its data centre burnt")
        assert await stage.operator.recover()
        stage.show()
        assert 50 == stage.retired(), "at least what it has spent"
        assert not stage.use("eu", 30)
        assert (0, True) == stage.claim("eu", 30)

        stage.pass_time(3600)
        stage.tell("", "the data centre did not burn down altogether: us is started, on the database it had")
        us = stage.start("us")
        assert not stage.use("us", 5), "by its own books there are 5 left"
        us.compare()
        us.look_at_history()
        assert not stage.use("us", 5)
        stage.show()
        assert (0, 40) == (stage.slice("us"), stage.debt("us"))

        stage.operator.readmit("us")
        us.look_at_history()
        us.relist()
        assert (40, 0) == (stage.slice("us"), stage.debt("us"))
        assert (5, True) == stage.claim("us", 5)
        assert stage.use("us", 5)
        stage.show()
