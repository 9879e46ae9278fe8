"""Errors as one line on stderr and an exit code; the codes are listed in docs/operations.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock import TLS

_TOO_LATE: Final = "TOO_LATE_TO_RECALL"  # a message that waits no more
_REFUSED: Final = re.compile(r"ipv[46]:(\S+): .*Connection refused( \(\d+\))?$")


class ExitCode(IntEnum):
    """What the exit code of every ``penstock`` command means, the services' own codes included."""

    DONE = 0
    FAILED = 1  # a bug, or a failure no other code names
    USAGE = 2  # an argument or setting is wrong; nothing was done
    LOCKED = 3  # another process holds the store
    NOT_A_STORE = 4  # missing, unreadable, or something else
    NEWER_FORMAT = 5  # written by a later version
    ADDRESS_TAKEN = 6  # something else listens there
    DAMAGED = 7  # done, and damage was found
    NOT_FOUND = 8  # no such topic, message or file
    UNREACHABLE = 9  # a service cannot be reached, or did not answer in time
    REFUSED = 10  # full, busy, read-only or not serving: may work later
    DENIED = 11  # no user is known, or the user lacks the right
    INTERRUPTED = 130  # or not confirmed at a prompt


class CommandFailed(Exception):
    """A command cannot go on; the message is all the user sees."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def describe(error: Exception) -> tuple[str, ExitCode]:
    """Return the line to print for an error that reached the top, and the exit code."""
    if isinstance(error, CommandFailed):
        return str(error), error.code
    if isinstance(error, FileNotFoundError):
        return f"{error.filename}: no such file or directory", ExitCode.NOT_FOUND
    if isinstance(error, IsADirectoryError | NotADirectoryError):
        return f"{error.filename}: {error.strerror}", ExitCode.USAGE
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}", ExitCode.FAILED
    from penstock.tls import BadTlsFile

    if isinstance(error, BadTlsFile):
        return str(error), ExitCode.USAGE
    return _of_client(error) or _of_store(error) or _unexpected(error)


def answers_of(
    asked: Mapping[str, Callable[[], Any]],
) -> tuple[dict[str, Any], dict[str, tuple[str, ExitCode]]]:
    """Ask one after the other; return what was answered, and the line and code of each that failed."""
    from penstock.errors import PenstockError

    found: dict[str, Any] = {}
    failed: dict[str, tuple[str, ExitCode]] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except PenstockError as error:
            failed[name] = describe(error)
    return found, failed


def nobody_answers(address: str) -> str:
    """Return the line for an address where nothing listens, with the command that starts a service."""
    from penstock.proxies import way_to

    return (
        f"no answer from {address}{way_to(address)}: is the service running?"
        " penstock serve --store DIRECTORY starts all services"
    )


def no_answer(error: Any, address: str, tls: TLS | None) -> CommandFailed:
    """Return what to raise for a call of gRPC to an address that is no service's of the client."""
    import grpc

    from penstock.proxies import way_to
    from penstock.tls import advice

    code, details = error.code(), error.details() or ""
    line = nobody_answers(address)
    if code is not grpc.StatusCode.UNAVAILABLE or "refused" not in details:
        hint = advice(details, tls)
        line = f"{address}{way_to(address)}: {code.name}{f'; {hint}' if hint else ''}"
    return CommandFailed(line, ExitCode.UNREACHABLE)


def _of_client(error: Exception) -> tuple[str, ExitCode] | None:
    from penstock import errors as client

    if not isinstance(error, client.PenstockError):
        return None
    line = _one_line(error)
    if isinstance(error, client.UnknownOutcome) and error.advice:  # no command takes a token
        line = f"{line.removesuffix(error.advice)}; look in the topic before you send again"
    if isinstance(
        error,
        client.InvalidArgument
        | client.TopicExists
        | client.GroupExists
        | client.UserExists
        | client.PolicyExists
        | client.Unimplemented
        | client.OffsetOutOfRange,
    ):
        return line, ExitCode.USAGE
    if isinstance(error, client.Unauthenticated):
        return f"{line} (PENSTOCK_ACCESS_KEY, PENSTOCK_SECRET_KEY)", ExitCode.DENIED
    if isinstance(error, client.PermissionDenied):
        return line, ExitCode.DENIED
    if isinstance(error, client.NotFound) or error.reason == _TOO_LATE:
        return line, ExitCode.NOT_FOUND
    if isinstance(error, client.Unavailable) and (refused := _REFUSED.search(line)):
        return nobody_answers(refused[1]), ExitCode.UNREACHABLE
    if isinstance(error, client.Unavailable | client.DeadlineExceeded | client.UnknownOutcome):
        return line, ExitCode.UNREACHABLE
    if isinstance(error, client.ResourceExhausted | client.FailedPrecondition):
        return line, ExitCode.REFUSED
    if isinstance(error, client.DataLoss):
        return line, ExitCode.DAMAGED
    return line, ExitCode.FAILED


def _of_store(error: Exception) -> tuple[str, ExitCode] | None:
    from storage import errors as store

    line = _one_line(error)
    if isinstance(error, store.StoreLocked):
        return line, ExitCode.LOCKED
    if isinstance(error, store.NotAStore):
        return line, ExitCode.NOT_A_STORE
    if isinstance(error, store.UnsupportedFormat):
        return line, ExitCode.NEWER_FORMAT
    if isinstance(error, store.UserExists | store.InvalidMessage):
        return line, ExitCode.USAGE
    return (line, ExitCode.FAILED) if isinstance(error, store.StoreError) else None


def _unexpected(error: Exception) -> tuple[str, ExitCode]:
    kind = type(error).__name__
    return f"internal error: {kind}: {_one_line(error)} (--debug shows where)", ExitCode.FAILED


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
