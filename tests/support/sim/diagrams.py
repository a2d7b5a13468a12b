"""Runs to draw: the single-token system of Chandy and Lamport (1985), and a run that goes wrong."""

from __future__ import annotations

from abscli.sim.diagram import COORDINATOR, Diagram, Message, Moment

TOKEN = Diagram(
    "single-token system: the snapshot finds the token on its way",
    ("p", "q"),
    (
        Moment(1, "p", "s1: has the token", "restore"),
        Moment(3, "q", "s0 into copy 1", "copy", 1),
        Moment(4, "q", "logs the token for 1", "log"),
        Moment(5, "p", "s0 into copy 1", "copy", 1),
        Moment(6, "q", "closes the log of 1", "barrier"),
    ),
    (
        Message("p", "q", 2, 4, "token"),
        Message("q", "p", 3, 5, "barrier 1", 1),
        Message("p", "q", 5, 6, "barrier 1", 1),
        Message("q", "p", 7, None, "token"),
    ),
    None,
)
"""q starts, p has just sent: p in s0, q in s0, the token in the channel from p to q: one of the four global states."""

ORPHAN = Diagram(
    "wordcount, seed 42, aligned",
    ("lines/0", "words/0", "words/1", "counts/0"),
    (
        Moment(1, COORDINATOR, "trigger 1", "trigger", 1),
        Moment(3, "lines/0", "copy 1", "copy", 1),
        Moment(4, "lines/0", "persisted 1", "persist", 1),
        Moment(5, "counts/0", "counts x", "record"),
        Moment(6, "words/0", "copy 1", "copy", 1),
        Moment(8, "counts/0", "does not block words/0", "record"),
        Moment(9, "words/1", "copy 1", "copy", 1),
        Moment(10, "counts/0", "counts z", "record"),
        Moment(11, "counts/0", "copy 1", "copy", 1),
        Moment(13, "words/1", "crash", "crash"),
        Moment(15, "words/1", "restored from 0", "restore"),
        Moment(16, COORDINATOR, "complete 1", "complete", 1),
        Moment(16, "counts/0", "orphan z", "violation"),
    ),
    (
        Message(COORDINATOR, "lines/0", 1, 2, "trigger 1"),
        Message("words/0", "counts/0", 2, 5, "x"),
        Message("lines/0", "words/0", 3, 6, "barrier 1", 1),
        Message("lines/0", "words/1", 3, 9, "barrier 1", 1),
        Message("lines/0", COORDINATOR, 4, 7, "ack 1"),
        Message("words/0", "counts/0", 6, 8, "barrier 1", 1),
        Message("words/0", "counts/0", 7, 10, "z"),
        Message("words/0", COORDINATOR, 8, 12, "ack 1"),
        Message("words/1", "counts/0", 9, 11, "barrier 1", 1),
        Message("words/1", COORDINATOR, 10, 13, "ack 1"),
        Message("counts/0", COORDINATOR, 12, 14, "ack 1"),
        Message("counts/0", "counts/0", 10, 12, "again"),
        Message("lines/0", "words/1", 12, None, "w"),
    ),
    "epoch 1: orphan on words/0->counts/0: 2 received, 1 sent. The record z was sent after words/0 had made its copy "
    "and is in the copy of counts/0: the channel was not blocked from its barrier to the copy.",
    ("lines", "words", "words", "counts"),
)
