"""What comes on one connection in a job whose lost tasks restart alone: schedules are learnt, what came before is
compared with that, and dropped."""

from __future__ import annotations

from collections.abc import Callable

from abscli.engine.channels.inbox import Inbox
from abscli.engine.channels.wire import Frame
from abscli.engine.local.arrivals import OtherFrame
from abscli.engine.local.ledger import Ledger


class Hearing:
    """differs: hears of a frame that came again and was another one."""

    def __init__(self, ledger: Ledger, inbox: Inbox, differs: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._inbox = inbox
        self._differs = differs
        self._deaf = False
        self._place: int | None = None

    def take(self, kind: Frame, number: int, payload: memoryview) -> memoryview | None:
        """Of a frame what the task is to get; None where that is not for the task. What it says of schedules is learnt
        first."""
        if self._deaf:
            return None
        if kind is Frame.SCHEMA:
            return payload
        payload = self._ledger.hear(payload, self._inbox.channel)
        arrivals = self._ledger.arrivals(self._inbox.channel)
        try:
            if kind is Frame.RECORDS:
                arrivals.records(number, self._inbox.next_record, payload)
            elif not arrivals.barrier(number, self._place):
                return None
        except OtherFrame as error:
            # Also what comes behind it: no barrier may pass by records that are not those that were counted.
            self._deaf = True
            self._differs(str(error))
            return None
        return payload

    def ends(self, record: int) -> None:
        """The last frame of records was not dropped, and `record` is the first one behind it."""
        self._place = record
