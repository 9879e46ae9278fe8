"""What is known of a record that is delivered: positions in its data, at SIZES lengths, and numbers."""

from __future__ import annotations

from typing import Final

from storage.kernels.primitives.jit import FEW_BYTES

BODY: Final = 0
KEYS: Final = 1
TAG: Final = 2
MESSAGE_ID: Final = 3
BORN_HOST_TEXT: Final = 4
MESSAGE_GROUP: Final = 5
TRACE_CONTEXT: Final = 6
PROPERTIES: Final = 7
SIZES: Final = 8
RECORD_SIZE: Final = 16
QUEUE_ID: Final = 17
QUEUE_OFFSET: Final = 18
BORN_MS: Final = 19
STORE_MS: Final = 20
BORN_HOST_AT: Final = 21
STORE_HOST_AT: Final = 22
FIELD_COUNT: Final = 23

RECORD_SIZE_MAX: Final = FEW_BYTES
ANSWER_SIZE_MAX: Final = 4 * FEW_BYTES  # a property takes at most six bytes more than in a record
DIGEST_SIZE: Final = 32  # of an MD5, in hexadecimal digits
