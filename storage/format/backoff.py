"""How long a message that was given back waits before it is handed out again, in a broker's shape.

``groupRetryPolicy`` of a group: ``{"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, ...]}}`` or
``{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}``;
a policy without values stands for a broker's defaults, which are those of the classes below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from storage.errors import InvalidMessage

DEFAULT_STEPS_MS: Final = tuple(
    seconds * 1_000 for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200)
)
BACKOFF_MS_MAX: Final = 12 * 3_600 * 1_000  # as of a lease
STEPS_MAX: Final = 256
_CUSTOMIZED: Final = "CUSTOMIZED"
_EXPONENTIAL: Final = "EXPONENTIAL"
_CUSTOMIZED_POLICY: Final = "customizedRetryPolicy"
_EXPONENTIAL_POLICY: Final = "exponentialRetryPolicy"
_EXPONENT_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class CustomizedBackoff:
    """A wait after each attempt; the last one after all further attempts."""

    next_ms: tuple[int, ...] = DEFAULT_STEPS_MS

    def delay_ms(self, attempt: int) -> int:
        """Return the wait after an attempt, of which the first is 1."""
        return self.next_ms[min(max(attempt, 1), len(self.next_ms)) - 1]

    def problem(self) -> str:
        """Say what is wrong with it, empty if nothing is."""
        if not 1 <= len(self.next_ms) <= STEPS_MAX:
            return f"needs between 1 and {STEPS_MAX} steps, not {len(self.next_ms)}"
        return _out_of_range(*self.next_ms)

    def to_json(self) -> dict[str, Any]:
        """Return it as a ``groupRetryPolicy``."""
        return {_CUSTOMIZED_POLICY: {"next": list(self.next_ms)}, "type": _CUSTOMIZED}


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """A wait that is multiplied after each attempt, up to a most."""

    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2

    def delay_ms(self, attempt: int) -> int:
        """Return the wait after an attempt, of which the first is 1."""
        exponent = min(max(attempt, 1) - 1, _EXPONENT_MAX)
        return min(self.max_ms, self.initial_ms * int(self.multiplier**exponent))

    def problem(self) -> str:
        """Say what is wrong with it, empty if nothing is."""
        if self.multiplier < 1:
            return f"a multiplier of {self.multiplier}; the least is 1"
        return _out_of_range(self.initial_ms, self.max_ms)

    def to_json(self) -> dict[str, Any]:
        """Return it as a ``groupRetryPolicy``."""
        values = {"initial": self.initial_ms, "max": self.max_ms, "multiplier": self.multiplier}
        return {_EXPONENTIAL_POLICY: values, "type": _EXPONENTIAL}


Backoff = CustomizedBackoff | ExponentialBackoff


def backoff_in(policy: Mapping[str, Any]) -> Backoff:
    """Return what a ``groupRetryPolicy`` says; a broker's default where it says nothing that holds."""
    try:
        backoff = _read(policy)
    except (TypeError, ValueError, AttributeError):
        return CustomizedBackoff()
    return CustomizedBackoff() if backoff.problem() else backoff


def checked_backoff(backoff: Backoff) -> Backoff:
    """Return a backoff that can be one. Raises InvalidMessage."""
    if problem := backoff.problem():
        raise InvalidMessage("backoff", problem)
    return backoff


def _read(policy: Mapping[str, Any]) -> Backoff:
    if policy.get("type") == _EXPONENTIAL:
        values = policy.get(_EXPONENTIAL_POLICY) or {}
        default = ExponentialBackoff()
        return ExponentialBackoff(
            initial_ms=int(values.get("initial", default.initial_ms)),
            max_ms=int(values.get("max", default.max_ms)),
            multiplier=int(values.get("multiplier", default.multiplier)),
        )
    steps = (policy.get(_CUSTOMIZED_POLICY) or {}).get("next")
    return CustomizedBackoff(tuple(int(step) for step in steps)) if steps else CustomizedBackoff()


def _out_of_range(*durations_ms: int) -> str:
    for duration_ms in durations_ms:
        if not 0 <= duration_ms <= BACKOFF_MS_MAX:
            return f"a wait of {duration_ms} ms; it must lie between 0 and {BACKOFF_MS_MAX}"
    return ""
