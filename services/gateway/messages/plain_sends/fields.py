"""Where a plain request lies in its buffer, and what is known of it.

The buffer has::

    position    content
    KEYS_AT     the keys, joined
    USER_AT     the user properties, as a record has them
    REQUEST_AT  the request

``fields``, of FIELD_COUNT, has the position of each text in the buffer and at SIZES its length, and
the numbers.
"""

from __future__ import annotations

from typing import Final

from storage.kernels.primitives.jit import FEW_BYTES

TOPIC: Final = 0
BODY: Final = 1
KEYS: Final = 2  # joined by single spaces
USER: Final = 3
TAG: Final = 4
MESSAGE_ID: Final = 5
BORN_HOST: Final = 6
TRACE_CONTEXT: Final = 7
SIZES: Final = 8
ENCODING: Final = 16
TYPE: Final = 17
BORN_MS: Final = 18  # -1 where it is not given
IGNORED: Final = 19
FIELD_COUNT: Final = 20

TEXTS_MAX: Final = 4 << 10  # of keys, of user properties and of each other text: below every limit
USER_COUNT_MAX: Final = 16
REQUEST_SIZE_MAX: Final = FEW_BYTES
KEYS_AT: Final = 0
USER_AT: Final = KEYS_AT + TEXTS_MAX
REQUEST_AT: Final = USER_AT + TEXTS_MAX
BUFFER_SIZE: Final = REQUEST_AT + REQUEST_SIZE_MAX
RECORD_SIZE_MAX: Final = BUFFER_SIZE + TEXTS_MAX
