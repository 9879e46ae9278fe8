"""What the value of a setting may be, and how a help text names it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from penstock.addresses import address_problem, is_loopback
from penstock.tls import PUBLIC

NONE: Final = "none"  # as one types that there is no such port
AUTO: Final = "auto"
_UNITS: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1}  # fmt: skip
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class Metavar(NamedTuple):
    """How a help text names a value."""

    text: str


def parse_size(value: Any) -> int:
    """Return bytes from a number, or from a text such as 64MiB. Raises ValueError."""
    number, unit = match.groups() if (match := _SIZE.fullmatch(str(value).strip())) else ("", "")
    factor = {name.lower(): size for name, size in _UNITS.items()}.get(unit.lower() or "b")
    if not number or factor is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a size: give bytes, for instance 64MiB")
    return int(float(number) * factor) if "." in number else int(number) * factor


def parse_size_or_auto(value: Any) -> int | str:
    """Return bytes, or ``auto`` as it is. Raises ValueError."""
    try:
        return AUTO if value == AUTO else parse_size(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {AUTO!r}") from None


def size_text(size: int) -> str:
    """Return bytes as they are typed: in the largest binary unit that divides them."""
    units = (name for name in ("GiB", "MiB", "KiB") if size and size % _UNITS[name] == 0)
    unit = next(units, "")
    return f"{size // _UNITS[unit or 'B']}{unit}"


def check_address(value: str, *, port_min: int = 0) -> str:
    """Return ``HOST:PORT`` as it is. Raises ValueError with what to change."""
    if fix := address_problem(value, port_min=port_min):
        raise ValueError(f"{value!r} is not HOST:PORT; {fix}")
    return value


def is_open_to_network(listen: str) -> bool:
    """Whether other machines reach an address that is listened on."""
    return not is_loopback(listen)


def _address_or_none(value: str) -> str:
    return check_address(value) if value not in ("", NONE) else ""


def _endpoint_or_empty(value: str) -> str:
    return value and check_address(value, port_min=1)


Address = Annotated[str, AfterValidator(check_address), Metavar("HOST:PORT")]
AddressOrNone = Annotated[str, AfterValidator(_address_or_none), Metavar("HOST:PORT|none")]
AuthoritiesFile = Annotated[str, Metavar(f"<path>|{PUBLIC}")]
Endpoint = Annotated[str, AfterValidator(_endpoint_or_empty), Metavar("HOST:PORT")]
Size = Annotated[int, BeforeValidator(parse_size), Field(ge=1), Metavar("SIZE")]
SizeOrNone = Annotated[int, BeforeValidator(parse_size), Field(ge=0), Metavar("SIZE")]
SizeOrAuto = Annotated[
    int | Literal["auto"], BeforeValidator(parse_size_or_auto), Metavar("SIZE|auto")
]
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Percent = Annotated[int, Field(ge=1, le=100)]
