from tests.transcripts.conftest import Tell


def test_partition_during_a_transfer(tell: Tell) -> None:
    with tell(
        "A partition in the middle of a transfer",
        """eu is to give capacity to us, and is cut off after it has lowered its slice in Postgres, but before etcd has
        heard of it. For as long as that lasts nobody can spend what is on its way: capacity may idle, but it is never
        there twice. Nobody has to clean up: a move is a request, and the next round asks again with fresh numbers.""",
    ) as stage:
        stage.open(100, eu=70, us=30)
        coordinator = stage.coordinator()
        stage.use("eu", 20)
        stage.use("us", 30)
        stage.show()

        stage.pass_time(5)
        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        giving = stage.agents["eu"].synchronise().until("swap")
        stage.cut("eu")
        giving.finish()
        stage.show()
        assert 25 == stage.slice("eu")
        assert 30 == stage.slice("us"), "what eu has given up is nobody's yet"

        stage.tell("", "eu goes on alone, with exactly its slice:")
        assert stage.hold("eu", 5)
        assert not stage.use("eu", 1)
        stage.pass_time(20)
        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        stage.show()
        assert 70 == stage.owned("eu"), "a region that is silent keeps what it owns"

        stage.pass_time(40)
        stage.heal("eu")
        stage.attend()
        assert 70 == stage.slice("eu"), "the move was withdrawn: it has given nothing away"
        stage.pass_time(5)
        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        for region in ("eu", "us"):
            stage.agents[region].synchronise().finish()
        assert stage.use("us", 30)
        stage.show()
