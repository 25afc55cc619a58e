from tests.transcripts.conftest import Tell


async def test_etcd_restored_from_a_snapshot(tell: Tell) -> None:
    with tell(
        "etcd is restored from an older snapshot",
        """Since the snapshot eu has given 35 to us, and us has spent them. The restored etcd knows nothing of it, and
        says that eu owns 70. Whoever remembers more than etcd does halts everything: regions go on within the slices
        they have, which is safe, and nothing moves. A recovery makes etcd say what the regions hold, under a new
        history; what was read under the old one is refused from then on.""",
    ) as stage:
        stage.open(100, eu=70, us=30)
        coordinator = stage.coordinator()
        stage.use("eu", 20)
        stage.use("us", 30)
        stage.pass_time(5)
        snapshot = stage.etcd.copy(stage.clock)
        stage.tell("", "a snapshot of etcd is taken")
        stage.show()

        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        for region in ("eu", "us"):
            stage.agents[region].synchronise().finish()
            stage.agents[region].look_at_history()
        assert stage.use("us", 30)
        slow = stage.another_process("eu", "agent eu 2").claim(10).until("swap")
        stage.tell("agent eu 2", "is about to claim 10 from the pool, and stops")
        stage.show()

        stage.pass_time(3600)
        stage.restore_etcd(snapshot)
        stage.tell("agent eu", "lists all documents")
        stage.agents["eu"].relist()
        stage.agents["eu"].look_at_history()
        coordinator.plan().finish()
        assert stage.use("eu", 2), "within its slice a region goes on"
        stage.show()
        assert (70, 25) == (stage.owned("eu"), stage.slice("eu"))
        assert (30, 65) == (stage.owned("us"), stage.slice("us"))

        assert await stage.operator.recover()
        coordinator = stage.coordinator("coordinator 2")
        stage.show()
        assert (25, 65) == (stage.owned("eu"), stage.owned("us"))

        stage.tell("agent eu 2", "wakes, with what it had read in the first history")
        slow.finish()
        assert stage.claim("eu", 10)[1]
        assert stage.use("eu", 10)
        stage.show()
        assert stage.admissible() <= 100
