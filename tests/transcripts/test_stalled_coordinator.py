from tests.transcripts.conftest import Tell


def test_stalled_coordinator(tell: Tell) -> None:
    with tell(
        "A coordinator stalls, and wakes past its lease",
        """coordinator 1 has read everything and is about to write its plan when its machine stops for half a minute.
        coordinator 2 leads meanwhile. The document is still the one that coordinator 1 has read, so comparing revisions
        alone would let its old plan in: its write names the leadership it had, and etcd refuses it. It did not have to
        notice that time had passed.""",
    ) as stage:
        stage.open(100, eu=40, us=50)
        first = stage.coordinator("coordinator 1")
        second = stage.coordinator("coordinator 2")
        stage.use("eu", 20)
        stage.use("us", 50)
        stage.pass_time(5)
        assert not stage.use("us", 10)
        stage.attend()
        stage.show()

        stage.tell("coordinator 1", "plans: us asks for more. It stops right before it writes")
        stalled = first.plan().until("swap")
        stage.asleep.add(first.name)
        stage.pass_time(30)
        stage.tell("", "us needs no more, eu does now:")
        stage.give_back("us", 40)
        assert not stage.use("eu", 30)
        stage.show()
        before = stage.picture().document

        stage.tell("coordinator 1", "wakes, and writes what it had planned")
        stalled.finish()
        assert before == stage.picture().document
        assert first.plan().at is None, "by its own clock it has not led for a while"
        first.hold()
        assert "coordinator 2" == stage.picture().leader

        stage.pass_time(5)
        second.round()
        for region in ("us", "eu"):
            stage.agents[region].synchronise().finish()
        assert stage.use("eu", 30)
        stage.show()
