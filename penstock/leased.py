"""Messages under lease, as a client has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from penstock.errors import InvalidArgument
from penstock.record import Record, Records
from storage.message import Damage


class Settles(Protocol):
    """Takes what became of ``count`` leased messages, whose handles come one after the other."""

    def acknowledge(self, client_id: str, handles: bytes, count: int) -> None:
        """Note that messages are done."""

    def give_back(self, client_id: str, handles: bytes, count: int, delay_ms: int | None) -> None:
        """Note that messages are to come again; without a delay, when the group's backoff says."""

    def dead_letter(self, client_id: str, handles: bytes, count: int) -> None:
        """Note that messages go to the dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The answer to a receive: records, and for each how often it was handed out and its handle.

    ``receipt_handles`` has the handles one after the other, all of ``handle_width`` bytes; calls take
    them like that, all or some. ``damaged`` has records whose bytes are not what was stored: the group
    has passed over them.
    """

    group: str
    topic: str
    records: Records
    attempts: Sequence[int]
    receipt_handles: bytes
    lease_end_ms: int
    damaged: tuple[Damage, ...] = ()

    @property
    def handle_width(self) -> int:
        """Bytes of one handle, 0 without one."""
        return len(self.receipt_handles) // len(self.records) if self.records else 0

    def handle(self, index: int) -> bytes:
        """Return the handle of one record."""
        width = self.handle_width
        return self.receipt_handles[index * width : (index + 1) * width]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHandle:
    """A handle that was refused: its index, and why ("EXPIRED", "ACKNOWLEDGED" or "FORGED")."""

    index: int
    problem: str


class LeasedRecord(Record):
    """A record that is leased to a subscription; it has a record's fields.

    It is settled once: acknowledged, given back, or made a dead letter. The first of these wins; it is sent a
    few milliseconds later, many at a time.
    """

    __slots__ = ("_client_id", "_outcomes", "attempt", "is_settled", "receipt_handle")

    def __init__(
        self,
        data: memoryview,
        position: int,
        *,
        attempt: int,
        receipt_handle: bytes,
        outcomes: Settles,
        client_id: str,
    ) -> None:
        super().__init__(data, position)
        self._client_id = client_id
        self.attempt = attempt
        self.receipt_handle = receipt_handle
        self.is_settled = False
        self._outcomes = outcomes

    def ack(self) -> None:
        """Acknowledge: the message is done and not delivered again."""
        if not self.is_settled:
            self._outcomes.acknowledge(self._client_id, self.receipt_handle, 1)
            self.is_settled = True

    def nack(self, delay_ms: int | None = None) -> None:
        """Give it back: it comes again after ``delay_ms``, or by the group's backoff.

        After the group's last attempt it becomes a dead letter instead. Raises InvalidArgument for a delay
        that is not a number of whole milliseconds from 0 on.
        """
        _check_delay(delay_ms)
        if not self.is_settled:
            self._outcomes.give_back(self._client_id, self.receipt_handle, 1, delay_ms)
            self.is_settled = True

    def dead_letter(self) -> None:
        """Make it a dead letter of the group now."""
        if not self.is_settled:
            self._outcomes.dead_letter(self._client_id, self.receipt_handle, 1)
            self.is_settled = True


class LeasedBatch(Sequence[LeasedRecord]):
    """Records that are leased to a subscription together: a sequence, settled one by one or at once.

    ``records`` and ``receipt_handles`` have the same without an object for each message.
    """

    __slots__ = (
        "_attempts",
        "_client_id",
        "_leased",
        "_outcomes",
        "_settled",
        "receipt_handles",
        "records",
    )

    def __init__(
        self,
        records: Records,
        attempts: Sequence[int],
        receipt_handles: bytes,
        *,
        outcomes: Settles,
        client_id: str,
    ) -> None:
        self.records = records
        self.receipt_handles = receipt_handles
        self._attempts = attempts
        self._outcomes = outcomes
        self._client_id = client_id
        self._leased: list[LeasedRecord] | None = None  # made when one is asked for
        self._settled = False

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> LeasedRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[LeasedRecord]: ...
    def __getitem__(self, index: int | slice) -> LeasedRecord | list[LeasedRecord]:
        return self._each()[index]

    def __iter__(self) -> Iterator[LeasedRecord]:
        return iter(self._each())

    def _each(self) -> list[LeasedRecord]:
        if self._leased is None:
            width = len(self.receipt_handles) // len(self.records)
            self._leased = [
                LeasedRecord(
                    record._data,
                    record._position,
                    attempt=attempt,
                    receipt_handle=self.receipt_handles[at * width : (at + 1) * width],
                    outcomes=self._outcomes,
                    client_id=self._client_id,
                )
                for at, (record, attempt) in enumerate(
                    zip(self.records, self._attempts, strict=True)
                )
            ]
            for record in self._leased:
                record.is_settled = self._settled
        return self._leased

    def _settle(self, settle: Callable[[str, bytes, int], None]) -> None:
        """Settle the unsettled messages; they are marked afterwards, as an interrupt may come before."""
        unsettled = [record for record in self._leased or () if not record.is_settled]
        handles, count = self.receipt_handles, 0 if self._settled else len(self.records)
        if self._leased is not None:
            handles = b"".join([record.receipt_handle for record in unsettled])
            count = len(unsettled)
        if count:
            settle(self._client_id, handles, count)
        for record in unsettled:
            record.is_settled = True
        self._settled = True

    def ack(self) -> None:
        """Acknowledge the messages that are not settled yet."""
        self._settle(self._outcomes.acknowledge)

    def nack(self, delay_ms: int | None = None) -> None:
        """Give back the messages that are not settled yet; see `LeasedRecord.nack`."""
        _check_delay(delay_ms)
        give_back = self._outcomes.give_back
        self._settle(
            lambda client_id, handles, count: give_back(client_id, handles, count, delay_ms)
        )

    def dead_letter(self) -> None:
        """Make dead letters of the messages that are not settled yet."""
        self._settle(self._outcomes.dead_letter)

    def __repr__(self) -> str:
        return f"<{len(self.records)} leased records>"


def _check_delay(delay_ms: int | None) -> None:
    if delay_ms is not None and (not isinstance(delay_ms, int) or delay_ms < 0):
        raise InvalidArgument(f"delay_ms: {delay_ms!r} is not a whole number from 0 on")
