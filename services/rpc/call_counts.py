"""What a process counts of the calls that it serves, for whoever shows it: on the event loop, in plain numbers."""

from __future__ import annotations

from collections import Counter
from typing import Final

from services.rpc.status import reason_of
from storage.counts import Histogram
from storage.errors import StoreError

CALL_SECONDS: Final = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 2.0, 3.0, 10.0,
)  # fmt: skip

# Unary methods that wait for messages if they are asked to.
WAITING_METHODS: Final = frozenset(
    {"Pull", "QueryByKey", "Receive", "ReceiveMessage", "WaitIndexed"}
)


class MethodCounts:
    """Calls of one method: those under way, and how long ended ones took, by the name of their status."""

    __slots__ = ("by_code", "is_stream", "method", "service", "under_way")

    def __init__(self, service: str, method: str, *, is_stream: bool) -> None:
        self.service = service  # full name, such as penstock.v1.Writer
        self.method = method
        self.is_stream = is_stream
        self.under_way = 0
        self.by_code: dict[str, Histogram] = {}

    def end(self, code: str, seconds: float) -> None:
        """Count a call that ended with a status."""
        self.under_way -= 1
        times = self.by_code.get(code)
        if times is None:
            times = self.by_code[code] = Histogram(CALL_SECONDS)
        times.add(seconds)


class CallCounts:
    """All methods of a process, and why calls and frames of streams were refused."""

    def __init__(self) -> None:
        self.methods: list[MethodCounts] = []
        self.refusals: Counter[str] = Counter()  # by the reason in the status

    def refuse(self, error: BaseException) -> None:
        """Count a refusal, of a call or of a frame of a stream that goes on."""
        self.refusals[reason_of(error) if isinstance(error, StoreError) else "INTERNAL"] += 1

    def of(self, service: str, method: str, *, is_stream: bool) -> MethodCounts:
        """Return where a method's calls are counted: of all ports the same place."""
        for known in self.methods:
            if (known.service, known.method) == (service, method):
                return known
        self.methods.append(MethodCounts(service, method, is_stream=is_stream))
        return self.methods[-1]
