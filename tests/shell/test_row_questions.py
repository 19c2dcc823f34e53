"""Questions for rows: answers are collected until all are there, and late ones are nobody's."""

import threading

from holdfast.core.coordinator.reports import RowsReported
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.shell.spark.row_questions import RowQuestions


def answer(ticket: int, node: str) -> RowsReported:
    return RowsReported(NodeId(node), Incarnation(1), ticket, ("",), ())


def test_a_question_has_the_answers_of_its_own_ticket() -> None:
    questions = RowQuestions()
    first, second = questions.open(), questions.open()
    questions.heard(answer(second, "a"))
    questions.heard(answer(first, "b"))
    assert [said.node for said in questions.close(second, 1, 60)] == ["a"]
    assert [said.node for said in questions.close(first, 1, 60)] == ["b"]


def test_whoever_asks_waits_for_all_and_for_the_rest_no_longer_than_it_says() -> None:
    questions = RowQuestions()
    ticket = questions.open()
    threading.Thread(target=lambda: questions.heard(answer(ticket, "a"))).start()
    assert [said.node for said in questions.close(ticket, 1, 60)] == ["a"]
    lonely = questions.open()
    assert questions.close(lonely, 1, 0.0) == []
    questions.heard(answer(lonely, "a"))  # Too late: nobody keeps it.
    assert questions.close(questions.open(), 0, 60) == []
