"""The lines of a file as messages: sent through a streaming producer, and what became of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cli.failures import CommandFailed, ExitCode, describe
from cli.line_ranges import WITHOUT_END, LineRanges
from cli.session import Session, counted, print_json

if TYPE_CHECKING:
    from penstock import Client, Handle, Producer
    from penstock.errors import PenstockError

PROGRESS_STEP: Final = 1_000
ALL_LINES: Final = LineRanges(((1, WITHOUT_END),))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as the command line was given it."""

    body: bytes
    keys: tuple[str, ...] = ()
    tag: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_id: int | None = None
    unique_key: str = ""


class Sending:
    """One run through numbered lines: what became of each that was sent, and why it stopped.

    ``wanted`` are the lines that a complete run would have sent.
    """

    def __init__(self, client: Client, topic: str, wanted: LineRanges) -> None:
        self.stored = 0
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self.left = LineRanges()
        self.problem = ""
        self.code = ExitCode.DONE
        self._client = client
        self._topic = topic
        self._wanted = wanted
        self._done = 0  # the last line that the producer has taken
        self._in_hand = 0  # the line it is taking
        self._under_way: deque[tuple[int, Handle]] = deque()  # as many as the producer bounds

    @property
    def sent(self) -> int:
        """How many lines the producer has taken."""
        return self.stored + len(self.unknown) + len(self.refused) + len(self._under_way)

    @property
    def not_stored(self) -> LineRanges:
        """The lines that are certainly not stored, once `run` is over."""
        return LineRanges.joined((*LineRanges.of(self.refused).ranges, *self.left.ranges))

    def run(self, lines: Iterable[tuple[int, Outgoing]], advance: Callable[[int], None]) -> None:
        """Send lines until they end, one is wrong, a failure would repeat, or Ctrl-C.

        Each line sent has its outcome then. Raises what is wrong before anything was sent.
        """
        patience_s = None
        with self._client.producer() as producer:
            try:
                self._send(producer, lines, advance)
            except KeyboardInterrupt:
                if not (self._done or self._in_hand):
                    raise
                if self._in_hand:  # it is unknown whether the producer had taken it
                    self.unknown.add(self._in_hand)
                self._stop("interrupted", ExitCode.INTERRUPTED)
                patience_s = self._client.timeout_s
            except (CommandFailed, OSError) as error:
                if not self._done:
                    raise
                self._stop(*describe(error))
            self._close(producer, patience_s)

    def _send(
        self,
        producer: Producer,
        lines: Iterable[tuple[int, Outgoing]],
        advance: Callable[[int], None],
    ) -> None:
        from penstock.errors import PenstockError

        for count, (number, message) in enumerate(lines, start=1):
            if not self._done:
                self._client.queue_count(self._topic)  # a producer would wait longer for its writer
            self._in_hand = number
            try:
                handle = producer.send(
                    self._topic,
                    message.body,
                    keys=message.keys,
                    tag=message.tag,
                    properties=message.properties,
                    queue_id=message.queue_id,
                    unique_key=message.unique_key,
                )
            except PenstockError as error:
                self._in_hand = 0
                line, code = describe(error)
                raise CommandFailed(f"line {number}: {line}", code) from error
            self._under_way.append((number, handle))
            self._in_hand, self._done = 0, number
            if count % PROGRESS_STEP == 0:
                advance(PROGRESS_STEP)
            if self._under_way[0][1].done and not self._may_go_on():
                self.left = self._wanted.after(number)
                return

    def _may_go_on(self) -> bool:
        """Take note of the outcomes that are known by now; False if the next would fare the same."""
        under_way = self._under_way
        may_go_on = True
        while under_way and under_way[0][1].done:
            number, handle = under_way[0]
            if (error := handle.exception()) is None:
                self.stored += 1
            else:
                may_go_on = self._failed(number, error) and may_go_on
            under_way.popleft()
        return may_go_on

    def _failed(self, number: int, error: PenstockError) -> bool:
        """Record a failure; a writer that died may be back for the lines that follow."""
        from penstock.errors import UnknownOutcome

        is_unknown = isinstance(error, UnknownOutcome)
        (self.unknown if is_unknown else self.refused).add(number)
        if not self.problem:
            line, self.code = describe(error)
            self.problem = f"line {number}: {line}"
        return is_unknown and error.code.name == "UNAVAILABLE"

    def _stop(self, problem: str, code: ExitCode) -> None:
        self.problem = f"{self.problem}; {problem}" if self.problem else problem
        self.code = code
        self.left = self._wanted.after(max(self._done, self._in_hand))

    def _close(self, producer: Producer, patience_s: float | None) -> None:
        from penstock.errors import PenstockError

        try:
            with suppress(PenstockError):  # each message has its own
                producer.close(patience_s)
        except KeyboardInterrupt:
            self._stop("interrupted", ExitCode.INTERRUPTED)
        self._may_go_on()
        self.unknown.update(number for number, _ in self._under_way)
        self._under_way.clear()


def send_lines(
    session: Session,
    client: Client,
    topic: str,
    lines: Iterable[tuple[int, Outgoing]],
    wanted: LineRanges = ALL_LINES,
) -> None:
    """Store numbered lines, which are those wanted of all there are, and print how many.

    Raises CommandFailed where not all are stored. It names the lines, and what sends them again.
    """
    began = time.monotonic()
    sending = Sending(client, topic, wanted)
    with session.progress("storing", None) as advance:
        sending.run(lines, advance)
        advance(sending.sent % PROGRESS_STEP)  # what the last step left
    seconds = time.monotonic() - began
    if sending.problem:
        raise _not_all(session, sending, seconds)
    session.say(
        f"stored [cyan]{counted(sending.stored, 'message')}[/] in {seconds:.2f} s"
        f" ({sending.stored / seconds:,.0f}/s)",
        {"stored": sending.stored, "seconds": round(seconds, 3)},
    )


def _not_all(session: Session, sending: Sending, seconds: float) -> CommandFailed:
    unknown, not_stored = LineRanges.of(sending.unknown), sending.not_stored
    if session.as_json:
        print_json(
            {
                "stored": sending.stored,
                "seconds": round(seconds, 3),
                "sent": sending.sent,
                "first_not_acknowledged": min(
                    (part.ranges[0][0] for part in (unknown, not_stored) if part.ranges),
                    default=None,
                ),
                "not_stored_lines": str(not_stored),
                "unknown_lines": str(unknown),
            }
        )
    parts = [sending.problem, f"{counted(sending.sent, 'line')} sent, {sending.stored:,} stored"]
    if not_stored.ranges:
        again = "correct that, then" if sending.code == ExitCode.USAGE else "send again:"
        parts.append(f"not stored, {again} --only {not_stored.shown()}")
    if unknown.ranges:
        parts.append(f"{len(sending.unknown):,} stored or not: --only {unknown.shown()}")
    return CommandFailed("; ".join(parts), sending.code)
