"""The few system calls that Python has no binding for, or binds while holding the GIL.

All but ``pwrite_few`` go through ``ctypes.CDLL``, which lets other threads run during the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import Final

MADV_POPULATE_READ: Final = 22
_EHWPOISON: Final = 133
MADV_POPULATE_WRITE: Final = 23
FALLOC_KEEP_SIZE: Final = 1
FALLOC_PUNCH_HOLE: Final = 2

_SYS_FUTEX: Final = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)
_FUTEX_WAIT: Final = 0
_FUTEX_WAKE: Final = 1
_SYS_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}.get(platform.machine(), -1)
_IOPRIO_WHO_PROCESS: Final = 1
_IOPRIO_IDLE: Final = 3 << 13

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.syscall.restype = ctypes.c_long
_pwrite = ctypes.PyDLL(None).pwrite
_pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
_pwrite.restype = ctypes.c_ssize_t


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def fallocate(descriptor: int, position: int, length: int) -> bool:
    """Reserve blocks for a range, extending the file; False where the file system cannot.

    Unlike ``posix_fallocate`` this never falls back to glibc's emulation, which writes one byte
    into every block. Raises OSError (ENOSPC, EFBIG, ...).
    """
    return _fallocate(descriptor, 0, position, length)


def sync_filesystem(descriptor: int) -> None:
    """Have the device hold all that was written to a file system, which the descriptor is of.

    Raises OSError where the kernel could not write something.
    """
    while _libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def punch_hole(descriptor: int, position: int, length: int) -> bool:
    """Give a range's blocks back and make it read as zeros; False where unsupported."""
    return _fallocate(descriptor, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE, position, length)


def _fallocate(descriptor: int, mode: int, position: int, length: int) -> bool:
    while _libc.fallocate(descriptor, mode, position, length) != 0:
        code = ctypes.get_errno()
        if code in (errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


def pwrite_few(descriptor: int, data: memoryview, position: int) -> bool:
    """Write a writable view's few bytes while holding the GIL; False if not all were written.

    A hand-over of the GIL to a busy thread and back costs more than copying to the page cache.
    """
    size = len(data)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    return int(_pwrite(descriptor, address, size, position)) == size


def populate_for_write(address: int, length: int) -> bool:
    """Fault pages in ready to be stored to, without changing them; False if it cannot be done."""
    return _populate(address, length, MADV_POPULATE_WRITE)


def populate_for_read(address: int, length: int) -> bool:
    """Fault pages in and leave them clean; False if it cannot be done."""
    return _populate(address, length, MADV_POPULATE_READ)


def can_read(address: int, length: int) -> bool:
    """Fault pages in for reading; False where touching one of them would be a signal.

    That is a page behind the end of its file, one that the device cannot read, and, of a full file system
    in memory, a hole. ``address`` is that of a page.
    """
    while _libc.madvise(address, length, MADV_POPULATE_READ) != 0:
        if ctypes.get_errno() not in (errno.EINTR, errno.EAGAIN):
            return ctypes.get_errno() not in (errno.EFAULT, _EHWPOISON)
    return True


def _populate(address: int, length: int, advice: int) -> bool:
    while _libc.madvise(address, length, advice) != 0:
        if ctypes.get_errno() not in (errno.EINTR, errno.EAGAIN):
            return False
    return True


def read_only_when_idle() -> bool:
    """Have the device serve this thread after all others, where its scheduler can; False if unknown."""
    if _SYS_IOPRIO_SET < 0:
        return False
    this_thread = ctypes.c_int(0)
    arguments = ctypes.c_int(_IOPRIO_WHO_PROCESS), this_thread, ctypes.c_int(_IOPRIO_IDLE)
    return bool(_libc.syscall(ctypes.c_long(_SYS_IOPRIO_SET), *arguments) == 0)


def futex_wait(address: int, expected: int, timeout_s: float | None) -> bool:
    """Sleep while the 32-bit word at ``address`` equals ``expected``; False on timeout only.

    True means woken, or that the word differed already, or a signal: look again.
    """
    timeout = None
    if timeout_s is not None:
        seconds = max(0.0, timeout_s)
        timeout = ctypes.byref(_Timespec(int(seconds), int(seconds % 1 * 1e9)))
    result = _libc.syscall(
        ctypes.c_long(_SYS_FUTEX), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAIT),
        ctypes.c_uint32(expected), timeout, None, ctypes.c_int(0),
    )  # fmt: skip
    return result == 0 or ctypes.get_errno() != errno.ETIMEDOUT


def futex_wake(address: int, count: int = 2**31 - 1) -> int:
    """Wake up to ``count`` waiters of the word at ``address``, in any process; return how many."""
    woken = _libc.syscall(
        ctypes.c_long(_SYS_FUTEX), ctypes.c_void_p(address), ctypes.c_int(_FUTEX_WAKE),
        ctypes.c_int(count), None, None, ctypes.c_int(0),
    )  # fmt: skip
    return int(woken)
