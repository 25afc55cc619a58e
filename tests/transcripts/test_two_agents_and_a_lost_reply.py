from tests.transcripts.conftest import Tell


def test_two_agents_and_a_lost_reply(tell: Tell) -> None:
    with tell(
        "Two agents of one region, and a reply that is lost",
        """Two servers of eu carry out the same move. One has stopped with an older document in hand, the other hands
        over, but never hears that etcd has written it. Neither raises the slice again, and nothing is given twice:
        Postgres refuses the older revision, etcd refuses a swap of a document that has changed, and whoever repeats the
        step finds that it is done.""",
    ) as stage:
        stage.open(100, eu=70, us=30)
        one, two, three = (stage.another_process("eu", f"agent eu {number}") for number in (1, 2, 3))
        coordinator = stage.coordinator()
        stage.use("eu", 20)
        stage.use("us", 30)
        before_the_move = three.synchronise().until("apply")
        stage.tell("agent eu 3", "has read the document, and stops before it carries it out")
        stage.pass_time(5)
        assert not stage.use("us", 30)
        stage.attend()
        coordinator.round()
        stage.show()

        slow = two.synchronise().until("swap")
        stage.tell("agent eu 2", "has lowered the slice, and stops before it hands over")
        handing_over = one.synchronise().until("swap")
        stage.tell("agent eu 1", "finds the slice lowered, and hands over; the network loses the reply")
        handing_over.lose_reply()
        stage.show()

        stage.tell("agent eu 2", "goes on, with the document that it had read")
        slow.finish()
        stage.tell("agent eu 3", "goes on, with the document from before the move")
        before_the_move.finish()
        stage.tell("agent eu 1", "begins the step again: there is nothing left to do")
        again = one.synchronise().finish()
        assert (0, True) == (again.result.gave, again.result.settled)
        stage.agents["us"].synchronise().finish()
        assert stage.use("us", 30)
        stage.show()
        assert (25, 25, 65) == (stage.slice("eu"), stage.owned("eu"), stage.owned("us"))
