from tests.transcripts.conftest import Tell


def test_failover_with_a_lost_decrease(tell: Tell) -> None:
    with tell(
        "A promoted replica has not heard what was given away",
        """The replica of eu lags: it lacks that callers gave 40 back, and that eu lowered its slice and handed the
        difference to us. Promoted, it believes in a slice that us owns by now. It is another incarnation of the
        database, so nothing is admitted in it until its slices were compared with etcd. What it holds too much is taken
        away; what is in use of that is owed, and eu admits nothing more until it is given back.""",
    ) as stage:
        stage.open(100, eu=70, us=30)
        coordinator = stage.coordinator()
        stage.use("eu", 60)
        stage.use("us", 30)
        replica = stage.stores["eu"].copy()
        stage.tell("", "the replica of eu stops following here")
        stage.show()

        stage.give_back("eu", 40)
        stage.pass_time(5)
        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        for region in ("eu", "us"):
            stage.agents[region].synchronise().finish()
        assert stage.use("us", 30)
        stage.show()

        stage.pass_time(20)
        stage.fail_over("eu", replica)
        assert not stage.use("eu", 10), "by its own books there are 10 left"
        stage.show()
        stage.agents["eu"].compare()
        assert not stage.use("eu", 1)
        stage.show()
        assert (25, 35) == (stage.slice("eu"), stage.debt("eu"))

        stage.tell("", "what was given back before the failover is reconciled: it is not in use")
        stage.give_back("eu", 40)
        assert stage.use("eu", 5)
        stage.show()
        assert 0 == stage.debt("eu")
