"""The table of settings in docs/operations.md, made from the settings' own fields.

``python -m cli.settings_table`` rewrites the part of the page between its two markers.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from pydantic import ByteSize
from pydantic.fields import FieldInfo

from services.config.process import ENV_PREFIX, ProcessSettings
from services.config.settings import (
    GatewaySettings,
    IndexerSettings,
    ReaderSettings,
    ServeSettings,
    WriterSettings,
    size_text,
)

PAGE: Final = Path("docs/operations.md")
BEGIN: Final = "<!-- settings: made by `make docs` -->"
END: Final = "<!-- /settings -->"
KINDS: Final[dict[str, type[ProcessSettings]]] = {
    "writer": WriterSettings,
    "reader": ReaderSettings,
    "indexer": IndexerSettings,
    "gateway": GatewaySettings,
    "serve": ServeSettings,
}


def rows() -> list[tuple[str, str, str, str]]:
    """Return flag, default, who takes it, and meaning of every setting."""
    found: dict[str, tuple[dict[str, str], str]] = {}
    for service, kind in KINDS.items():
        for name, field in kind.model_fields.items():
            defaults, _ = found.setdefault(name, ({}, field.description or ""))
            defaults[service] = _default(field)
    return [
        (name, _defaults(defaults), _services(defaults), meaning)
        for name, (defaults, meaning) in found.items()
    ]


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| Flag | Variable | Default | Of | Meaning |", "|---|---|---|---|---|"]
    for name, default, services, meaning in rows():
        flag = f"`--{name.replace('_', '-')}`"
        lines.append(
            f"| {flag} | `{ENV_PREFIX}{name.upper()}` | {default} | {services} | {meaning} |"
        )
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return the page with a fresh table between its markers."""
    head, found, rest = page.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value: Any = field.default
    if value is None or value == "":
        return "none"
    if isinstance(value, ByteSize):
        return f"`{size_text(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _defaults(defaults: dict[str, str]) -> str:
    values = list(dict.fromkeys(defaults.values()))
    return values[0] if len(values) == 1 else "; ".join(f"{v} {k}" for k, v in defaults.items())


def _services(defaults: dict[str, str]) -> str:
    return "all" if len(defaults) == len(KINDS) else ", ".join(defaults)


def main() -> int:
    """Rewrite the page."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
