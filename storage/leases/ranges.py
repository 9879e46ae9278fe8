"""What is handed out of one queue to a group: ranges of its messages, each with the state that they share.

Messages of 64 adjacent queue offsets are a block. A block has for each state a bitmap of the messages in it;
what is done is in none. Messages that were received together stay one bitmap until something becomes of one
of them alone. In an orderly group the messages of a message group form a line, and only its first one is not
BLOCKED.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from storage.kernels.leases import BLOCK_BITS, BLOCK_SIZE

LEASED: Final = 1  # until ``visible_at``, or longer if its owner renews it; then it is due
BLOCKED: Final = 2  # by an earlier one of its message group
DEAD: Final = 3  # to be made a dead letter of; asked for again at ``visible_at``
WAITING: Final = 4  # given back: due at ``visible_at``; its handle is good until then

NO_OWNER: Final = -1
NEVER: Final = (1 << 63) - 1
ATTEMPTS_MAX: Final = (1 << 24) - 1


class State(NamedTuple):
    """What has become of messages; ``leased_at`` is 0 before they were handed out. Times are Unix ms."""

    kind: int
    attempts: int
    visible_at: int
    leased_at: int = 0
    owner: int = NO_OWNER


class Messages(NamedTuple):
    """Some messages of a block that share a state."""

    number: int
    mask: int
    state: State


class _Masks:
    __slots__ = ("nearest_ms", "states")

    def __init__(self) -> None:
        self.states: dict[State, int] = {}
        self.nearest_ms = NEVER  # none of them is due before


def offsets_in(number: int, mask: int) -> list[int]:
    """Return the queue offsets of messages of a block."""
    begin, first = number << BLOCK_BITS, max((mask & -mask).bit_length() - 1, 0)
    return [begin + bit for bit in range(first, mask.bit_length()) if mask >> bit & 1]


def _up_to(number: int, queue_offset: int) -> int:
    """Return the mask of the messages of a block that lie before a queue offset."""
    return (1 << max(0, min(queue_offset - (number << BLOCK_BITS), BLOCK_SIZE))) - 1


class LeasedRanges:
    """Messages of one queue that are not done. ``nearest_ms``: none of them is due before; it may be too early."""

    def __init__(self, next_offset: int = 0, *, is_orderly: bool = False) -> None:
        self.next_offset = next_offset
        """Nothing from here on was handed out."""
        self.nearest_ms = NEVER
        self.live_count = 0
        self.blocked_count = 0
        self._blocks: dict[int, _Masks] = {}  # ascending: one is added after all others
        self._groups: dict[int, int] | None = {} if is_orderly else None  # by queue offset
        self._lines: dict[int, deque[int]] = {}  # queue offsets by message group

    @property
    def is_orderly(self) -> bool:
        """Whether there are message groups."""
        return self._groups is not None

    @property
    def group_offset(self) -> int:
        """Everything before it is done."""
        for number, block in self._blocks.items():
            live = sum(block.states.values())
            return (number << BLOCK_BITS) + (live & -live).bit_length() - 1
        return self.next_offset

    def state_of(self, queue_offset: int) -> State | None:
        """Return the state of one queue offset; None if it is done, or was not handed out."""
        return self.shared_state(queue_offset >> BLOCK_BITS, 1 << queue_offset % BLOCK_SIZE)

    def shared_state(self, number: int, mask: int) -> State | None:
        """Return the state of all of some messages of a block; None if they do not share one."""
        block = self._blocks.get(number)
        if block is not None:
            for state, live in block.states.items():
                if live & mask == mask:
                    return state
        return None

    def all(self) -> Iterator[Messages]:
        """Yield all messages, by state, from the lowest block on; they may be changed meanwhile."""
        for number, block in list(self._blocks.items()):
            for state, mask in list(block.states.items()):
                yield Messages(number, mask, state)

    def set(self, number: int, mask: int, state: State | None, now_ms: int = 0) -> None:
        """Give messages of a block a state, None for done: then the next ones of their message groups are free."""
        block = self._blocks.get(number)
        if block is None:
            if state is None:
                return
            block = self._blocks[number] = _Masks()
        states, moved = block.states, 0
        for held, live in list(states.items()):
            if live & mask:
                moved |= live & mask
                if held.kind == BLOCKED:
                    self.blocked_count -= (live & mask).bit_count()
                if live & ~mask:
                    states[held] = live & ~mask
                else:
                    del states[held]
        self.live_count -= moved.bit_count()
        if state is not None:
            states[state] = states.get(state, 0) | mask
            self.live_count += mask.bit_count()
            if state.kind == BLOCKED:
                self.blocked_count += mask.bit_count()
            block.nearest_ms = min(block.nearest_ms, state.visible_at)
            self.nearest_ms = min(self.nearest_ms, state.visible_at)
            return
        if not states:
            del self._blocks[number]
            if not self._blocks:
                self.nearest_ms = NEVER
        if self._groups is not None:
            for queue_offset in offsets_in(number, moved):
                self._leave_line(queue_offset, now_ms)

    # ---- message groups

    def has_line(self, message_group: int) -> bool:
        """Return whether there are messages of a message group."""
        return message_group in self._lines

    def group_of(self, queue_offset: int) -> int:
        """Return the message group of a message."""
        return 0 if self._groups is None else self._groups.get(queue_offset, 0)

    def join_line(self, queue_offset: int, message_group: int) -> None:
        """Put a message at the end of its message group's line, if it is in none; of an orderly group alone."""
        if self._groups is not None and queue_offset not in self._groups:
            self._groups[queue_offset] = message_group
            self._lines.setdefault(message_group, deque()).append(queue_offset)

    def _leave_line(self, queue_offset: int, now_ms: int) -> None:
        assert self._groups is not None
        message_group = self._groups.pop(queue_offset)
        line = self._lines[message_group]
        line.remove(queue_offset)
        if line:
            self._free(line[0], now_ms)
        else:
            del self._lines[message_group]

    def _free(self, queue_offset: int, now_ms: int) -> None:
        state = self.state_of(queue_offset)
        if state is not None and state.kind == BLOCKED:
            number, mask = queue_offset >> BLOCK_BITS, 1 << queue_offset % BLOCK_SIZE
            self.set(number, mask, State(LEASED, state.attempts, now_ms))

    def free_first(self, now_ms: int) -> None:
        """Free the first message of each line, by queue offset: the order of a journal's events is another."""
        for message_group, line in self._lines.items():
            self._lines[message_group] = deque(sorted(line))
            self._free(self._lines[message_group][0], now_ms)

    def set_orderly(self, *, is_orderly: bool, now_ms: int) -> None:
        """Have message groups or not; messages that there are have none, and are free."""
        if is_orderly == self.is_orderly:
            return
        messages = list(self.all())
        if is_orderly:
            self._groups = {}
            for number, mask, _ in messages:
                for queue_offset in offsets_in(number, mask):
                    self.join_line(queue_offset, 0)
            return
        self._groups, self._lines = None, {}
        for number, mask, state in messages:
            if state.kind == BLOCKED:
                self.set(number, mask, State(LEASED, state.attempts, now_ms))

    # ---- many at once

    def drop_before(self, queue_offset: int, now_ms: int) -> None:
        """Take what lies before a queue offset for done."""
        for number in list(self._blocks):
            if number << BLOCK_BITS >= queue_offset:
                break
            self.set(number, _up_to(number, queue_offset), None, now_ms)

    def drop_from(self, queue_offset: int, now_ms: int) -> None:
        """Forget what was handed out from a queue offset on, and go on there if it is lower."""
        for number in reversed(list(self._blocks)):
            if number + 1 << BLOCK_BITS <= queue_offset:
                break
            self.set(number, ~_up_to(number, queue_offset), None, now_ms)
        self.next_offset = min(self.next_offset, queue_offset)

    def due(self, now_ms: int, count: int, until_ms: Callable[[State], int]) -> list[Messages]:
        """Return messages whose time has come, the oldest first, ``count`` at most; they stay as they are.

        ``until_ms`` says when a lease ends that its owner may have renewed. What is found lies in ascending blocks.
        """
        found: list[Messages] = []
        nearest_ms = NEVER
        for number, block in self._blocks.items():
            if block.nearest_ms <= now_ms and count:
                here, block.nearest_ms = [], NEVER
                for state, mask in block.states.items():
                    time_ms = state.visible_at
                    if time_ms <= now_ms and state.owner != NO_OWNER:
                        time_ms = until_ms(state)
                    block.nearest_ms = min(block.nearest_ms, time_ms)
                    if time_ms <= now_ms:
                        here.append((mask, state))
                due = sum(mask for mask, _ in here)
                while due.bit_count() > count:
                    due &= ~(1 << due.bit_length() - 1)
                count -= due.bit_count()
                found += [Messages(number, mask & due, state) for mask, state in here if mask & due]
            nearest_ms = min(nearest_ms, block.nearest_ms)
            if nearest_ms <= now_ms and not count:
                break
        self.nearest_ms = nearest_ms
        return found
