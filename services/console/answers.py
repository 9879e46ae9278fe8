"""What services said last: shared by all pages of a user, kept while a service is away."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from penstock import Cancelled, DeadlineExceeded, PenstockError, Unavailable
from storage.clock import Clock

T = TypeVar("T")
KEPT_MAX: Final = 500
AGAIN_S: Final = 1.0  # after a failure
AWAY: Final = (Unavailable, DeadlineExceeded, Cancelled)
BUSY_SHARE: Final = 0.015  # of the time, in which a service may be asked anew
WANTED_S: Final = 60.0  # an answer that nobody wanted for so long takes no part in that
AT_ONCE: Final = 4  # calls to a service
MEASURED: Final = (
    3  # calls, the shortest of which is an answer's cost: others waited for the machine
)


@dataclass(slots=True)
class LastAnswer(Generic[T]):
    """The last answer to a question, when it came, and why there is no newer one."""

    service: str
    value: T | None = None
    answered_ms: int = 0  # Unix milliseconds; 0: never
    error: PenstockError | None = None
    asked_s: float = float("-inf")  # monotonic, as `wanted_s`
    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=MEASURED))
    wanted_s: float = 0.0
    fresh_s: float = 1.0

    @property
    def cost_s(self) -> float:
        """What an answer costs its service; 0 until two have come, as the first call opens a connection."""
        return min(self.took_s) if len(self.took_s) > 1 else 0.0

    @property
    def is_away(self) -> bool:
        """Whether the service did not answer the last time."""
        return isinstance(self.error, AWAY)

    def needed(self) -> T:
        """Return the value. Raises what the question failed with if there is none."""
        if self.value is None:
            assert self.error is not None
            raise self.error
        return self.value


class Answers:
    """Answers by question, each asked for again when somebody looks and it is older than it may be.

    Those who ask at once share one call. Answers that take long are asked for so rarely that all together keep services
    busy for 1.5 % of the time, however many pages are open; those that take little stay fresh.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[object, LastAnswer[Any]] = OrderedDict()
        self._asking: dict[object, asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    async def get(
        self,
        service: str,
        key: object,
        ask: Callable[[], Awaitable[T]],
        *,
        fresh_s: float = 1.5,
        patience_s: float | None = None,
    ) -> LastAnswer[T]:
        """Return the answer to a question of a service, at most ``fresh_s`` old if it costs the service little.

        What does not come within ``patience_s`` is what was known, and a later call has the new one.
        """
        now_s = self._clock.monotonic()
        answer = self._known.get(key)
        if answer is None:
            answer = self._known[key] = LastAnswer(service)
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        answer.wanted_s, answer.fresh_s = now_s, fresh_s
        if now_s - answer.asked_s >= self._wait_s(answer):
            task = self._asking.get(key)
            if task is None:
                task = self._asking[key] = asyncio.ensure_future(self._ask(key, answer, ask))
            await asyncio.wait((task,), timeout=patience_s)
            if task.done():
                task.result()
        return cast("LastAnswer[T]", answer)

    def _wait_s(self, answer: LastAnswer[Any]) -> float:
        """Return how long an answer is good."""
        if answer.error is not None:
            return AGAIN_S
        return max(answer.fresh_s, answer.cost_s / self._share_max(answer.wanted_s))

    def _share_max(self, now_s: float) -> float:
        """Return what share of the time one question may take, for all that are wanted to take BUSY_SHARE at most."""
        shares = sorted(
            each.cost_s / each.fresh_s
            for each in self._known.values()
            if now_s - each.wanted_s < WANTED_S
        )
        left = BUSY_SHARE
        for place, share in enumerate(shares):
            equal = left / (len(shares) - place)
            if share > equal:
                return equal
            left -= share
        return BUSY_SHARE

    async def _ask(
        self, key: object, answer: LastAnswer[Any], ask: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            async with self._turns[answer.service]:
                began_s = self._clock.monotonic()
                try:
                    answer.value = await ask()
                except PenstockError as error:
                    answer.error = error
                    if not isinstance(error, AWAY):  # it is not so any more, or not for this user
                        answer.value = None
                else:
                    answer.error = None
                    answer.answered_ms = self._clock.now_ms()
                    answer.took_s.append(self._clock.monotonic() - began_s)
        finally:
            answer.asked_s = self._clock.monotonic()
            self._asking.pop(key, None)

    def forget(self) -> None:
        """Ask again for everything: something was changed."""
        for answer in self._known.values():
            answer.asked_s = float("-inf")
