from tests.transcripts.conftest import Tell


def test_claim_racing_a_round(tell: Tell) -> None:
    with tell(
        "A claim and a round want the same pool",
        """A region that runs short claims from the pool by itself while the coordinator is about to grant the same
        units to another. Both have read the same revision; etcd lets one of them write. The loser has changed nothing,
        and looks again: once it is the coordinator, once it is the claim.""",
    ) as stage:
        stage.open(100, eu=40, us=40)
        coordinator = stage.coordinator()
        stage.use("eu", 40)
        stage.use("us", 40)
        stage.pass_time(5)
        assert not stage.use("eu", 15)
        stage.attend()
        stage.show()

        round_ = coordinator.plan().until("swap")
        stage.tell("coordinator", "is about to grant eu what it asks for, out of the pool")
        assert not stage.use("us", 20)
        assert (20, True) == stage.claim("us", 20)
        assert stage.use("us", 20)
        round_.finish()
        stage.show()
        assert 40 == stage.owned("eu")

        stage.tell("", "us gives units back, a round brings them to eu and to the pool:")
        stage.give_back("us", 30)
        stage.pass_time(20)  # until what was denied at first is forgotten
        assert not stage.use("eu", 10)
        stage.attend()
        coordinator.round()
        stage.agents["us"].synchronise().finish()
        stage.agents["eu"].synchronise().finish()
        assert stage.use("eu", 10)
        stage.show()

        stage.pass_time(5)
        assert not stage.use("eu", 15)
        claim = stage.agents["eu"].claim(5).until("swap")
        stage.tell("agent eu", "is about to claim 5, when the coordinator is faster")
        stage.attend()
        coordinator.round()
        claim.finish()
        assert 0 == claim.result[0]
        stage.tell("agent eu", "got nothing by its claim, and looks again")
        stage.agents["eu"].synchronise().finish()
        assert stage.use("eu", 15)
        stage.show()
