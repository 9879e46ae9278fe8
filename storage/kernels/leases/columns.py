"""What the tables of leases hold: rows, events, records that are handed out, opened handles.

Rows of one queue of a group are sorted by queue offset. They stand in ``[HEAD, TAIL)``; those that are done
stay there as GONE until the table is moved together. One int64 row a message::

    column  name           meaning
    0       OFFSET         queue offset
    1       VISIBLE_AT     Unix ms: end of the lease, or when it comes again; NEVER while it is blocked
    2       LEASED_AT      Unix ms: when it was handed out last; 0 before the first time
    3       STATE          (owner + 1) << 32 | state << 24 | attempts so far
    4       MESSAGE_GROUP  hash of its message group; of orderly groups only, as are those after it
    5       NEXT_IN_GROUP  of ``message_groups``, as the next ones
    6, 7    SLOTS

``minima`` has for each block of rows a time that none of them is due before, ``bounds[NEAREST_MS]`` one for
all of them: they may be too early, never too late. In an orderly group every live row is BLOCKED but the
first of its message group.

An event says what became of a run of rows with adjacent queue offsets; ``storage.format.leases.journal`` has
its columns.
"""

from __future__ import annotations

from typing import Final

OFFSET: Final = 0
VISIBLE_AT: Final = 1
LEASED_AT: Final = 2
STATE: Final = 3
MESSAGE_GROUP: Final = 4
PLAIN_COLUMNS: Final = 4
NEXT_IN_GROUP: Final = 5
SLOTS: Final = 6
ORDERLY_COLUMNS: Final = 8

HEAD: Final = 0
TAIL: Final = 1
LIVE: Final = 2
BLOCKED_COUNT: Final = 3
NEAREST_MS: Final = 4
NEXT_OFFSET: Final = 5  # nothing from here on was handed out
COMMITTED: Final = 6  # what consumerOffset.json was last given; -1 if nothing
BOUND_COUNT: Final = 7

GONE: Final = 0
LEASED: Final = 1  # until VISIBLE_AT, or longer if its owner renews it; then it is due
BLOCKED: Final = 2  # by an earlier one of its message group
DEAD: Final = 3  # to be made a dead letter of; asked for again at its time
WAITING: Final = 4  # given back: due at VISIBLE_AT; its handle is good until then

NEVER: Final = (1 << 63) - 1
BLOCK_BITS: Final = 8
ATTEMPTS_MAX: Final = (1 << 24) - 1
STATE_BITS: Final = 24
OWNER_BITS: Final = 32

# of what ``due_rows`` finds
DUE_INDEX: Final = 0
DUE_IS_DEAD: Final = 1
DUE_COLUMNS: Final = 2

# of records that are to be handed out, see ``storage.kernels.leases.records``
RECORD_OFFSET: Final = 2
RECONSUME_TIMES: Final = 3
RECORD_GROUP: Final = 4
IS_CHOSEN: Final = 5

# of opened receipt handles
HANDLE_KIND: Final = 0
HANDLE_QUEUE_ID: Final = 1
HANDLE_OFFSET: Final = 2
HANDLE_ATTEMPT: Final = 3
HANDLE_LEASED_AT: Final = 4
HANDLE_PROBLEM: Final = 5
HANDLE_COLUMNS: Final = 6

# problems of handles
OPEN: Final = -1  # not looked up yet
GOOD: Final = 0
FORGED: Final = 1  # not a handle of this group and topic, or of another key
EXPIRED: Final = 2  # the lease's time is over, or it was handed out again since
ACKNOWLEDGED: Final = 3  # or dropped by a reset
