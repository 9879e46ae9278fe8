"""What errors of the operating system mean to a store: which of them go by, and which need somebody to look.

A full disk is StoreFull, and no descriptors, maps or memory left is StoreBusy: in both cases nothing
was done, and the same call works when there is room again. All others stay what they are.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from storage.errors import StoreBusy, StoreFull

SCARCE_RETRY_MS: Final = 200
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def check_room(error: OSError, subject: object) -> None:
    """Raise StoreFull or StoreBusy if that is what the error of a call about ``subject`` means.

    One that stays names ``subject``, and not the name that the kernel was given for it.
    """
    if error.errno in _FULL:
        raise StoreFull(f"no space left for {subject}: {error.strerror}") from error
    if error.errno in _SCARCE:
        raise StoreBusy(
            f"{subject} cannot be opened now: {error.strerror}", retry_delay_ms=SCARCE_RETRY_MS
        ) from error
    if error.filename is not None:
        error.filename = str(subject)


@contextmanager
def checking_room(subject: object) -> Iterator[None]:
    """Raise StoreFull or StoreBusy in place of errors that mean it."""
    try:
        yield
    except OSError as error:
        check_room(error, subject)
        raise
