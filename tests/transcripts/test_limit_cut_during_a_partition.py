from tests.transcripts.conftest import Tell


def test_limit_cut_during_a_partition(tell: Tell) -> None:
    with tell(
        "A limit is cut while a region is cut off",
        """eu cannot hear that the limit falls from 100 to 60, so it goes on with what was legal before. The pool goes
        below zero: that is what is still to be collected. What all regions can admit only falls from then on, and
        reaches the new limit once eu is back and its usage has fallen. Nobody's running work is taken away.""",
    ) as stage:
        stage.open(100, eu=60, us=40)
        coordinator = stage.coordinator()
        stage.use("eu", 40)
        stage.use("us", 25)
        stage.cut("eu")
        stage.pass_time(20)
        coordinator.round()
        stage.show()

        stage.operator.set_limit(60)
        coordinator.round()
        stage.agents["us"].synchronise().finish()
        assert not stage.use("us", 1)
        assert stage.use("eu", 20), "legal before the cut, and eu has heard of none"
        stage.show()
        assert 85 == stage.admissible()

        stage.tell("", "us needs less; the next round collects what it frees:")
        stage.give_back("us", 15)
        stage.pass_time(5)
        coordinator.round()
        stage.agents["us"].synchronise().finish()
        stage.show()
        assert 70 == stage.admissible()

        stage.heal("eu")
        stage.pass_time(5)
        coordinator.round()
        assert not stage.use("eu", 1)
        stage.give_back("eu", 30)
        stage.pass_time(5)
        coordinator.round()
        stage.agents["eu"].synchronise().finish()
        stage.show()
        assert stage.admissible() <= 60
