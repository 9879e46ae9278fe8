"""How much of a service one user may take. Of each number 0 is no limit, and None what services are set to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from storage.errors import InvalidMessage

LIMIT_MAX: Final = 1 << 62  # as a number on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of each service a user may take. 0 is no limit, None what the service is set to."""

    requests_per_second: int | None = None  # calls, and frames of streams
    bytes_per_second: int | None = None  # of requests and answers
    calls_max: int | None = None  # under way at once
    call_bytes_max: int | None = None  # of the requests and answers of those calls
    connections_max: int | None = None  # with calls under way

    @property
    def given(self) -> dict[str, int]:
        """The numbers that are given, by their names."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, others: Limits) -> Limits:
        """Return the same, with those of ``others`` where none is given."""
        return replace(others, **self.given)


NOT_GIVEN: Final = Limits()
LIMIT_NAMES: Final = tuple(field.name for field in fields(Limits))


def checked_limits(given: Mapping[str, Any]) -> Limits:
    """Return limits of what a caller or a file names. Raises InvalidMessage."""
    for name, value in given.items():
        if name not in LIMIT_NAMES:
            raise InvalidMessage("limits", f"{name!r} is none of {', '.join(LIMIT_NAMES)}")
        if type(value) is not int or not 0 <= value <= LIMIT_MAX:
            raise InvalidMessage("limits", f"{name} is a number from 0, not {value!r}")
    return Limits(**given)
