from tests.transcripts.conftest import Tell


def test_eviction_and_return(tell: Tell) -> None:
    with tell(
        "A region is lost, evicted, and comes back after all",
        """us is gone, with 50 of the 100, and nobody knows how much of that is in use. An operator's word takes it
        out, but all 50 stay counted as spent. Its servers come back with their database: they give every slice up
        before they admit anything, and say what is in use. That is evidence: so much us owns again, the rest is
        everybody's.""",
    ) as stage:
        stage.open(100, eu=40, us=50)
        coordinator = stage.coordinator()
        stage.use("eu", 40)
        stage.use("us", 20)
        stage.pass_time(5)

        stage.operator.evict("us", "it looks dead to me")
        assert 50 == stage.owned("us")
        stage.lose("us")
        stage.pass_time(20)
        coordinator.round()
        stage.operator.evict("us", "powered off, ticket 4711")
        assert not stage.use("eu", 15)
        assert (10, True) == stage.claim("eu", 15)
        stage.show()
        assert 0 == stage.owned("us")

        stage.pass_time(600)
        stage.tell("", "the servers of us are started, on the database they had")
        us = stage.start("us")
        assert not stage.use("us", 1)
        stage.show()
        stage.operator.readmit("us")
        assert 0 == stage.owned("us"), "it has said nothing yet"
        us.compare()
        assert not stage.use("us", 1)
        us.look_at_history()
        assert [20] == [word.in_use for word in stage.etcd.statements["us"].stated]
        stage.tell("agent us", "states what it has in use: 20")
        stage.show()
        assert (0, 20) == (stage.slice("us"), stage.debt("us"))

        stage.operator.readmit("us")
        us.look_at_history()
        us.relist()
        assert (20, 0) == (stage.slice("us"), stage.debt("us"))
        assert stage.claim("eu", 15)[1]
        assert stage.use("eu", 15)
        assert stage.claim("us", 10)[1]
        assert stage.use("us", 10)
        stage.show()
