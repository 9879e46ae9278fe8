"""The tables of settings in docs/operations.md, made from the settings' own fields.

``python -m cli.settings_table`` rewrites the part of the page between its two markers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo

from services.config.flags import default_text, flag_of
from services.config.groups import GROUPS, help_entries
from services.config.settings import KINDS

PAGE: Final = Path("docs/operations.md")
BEGIN: Final = "<!-- settings: made by `make docs` -->"
END: Final = "<!-- /settings -->"


def table() -> str:
    """Return a table for each group as Markdown."""
    lines = []
    for title, groups in GROUPS.items():
        lines += [f"**{title}**", "", "| Flag | Default | Of | Meaning |", "|---|---|---|---|"]
        for name, entry in (item for group in groups for item in help_entries(group).items()):
            fields = {
                service: kind.model_fields[name]
                for service, kind in KINDS.items()
                if name in kind.model_fields
            }
            services = _services(fields)
            cells = f"`{flag_of(name)}`", _defaults(fields), services, entry.meaning
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def with_table(page: str) -> str:
    """Return the page with fresh tables between its markers."""
    head, found, rest = page.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{PAGE} has lost its markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


def _services(fields: Iterable[str]) -> str:
    """Return who takes a setting, shorter where it is all, or all but the console."""
    others = KINDS.keys() - set(fields)
    return "all services" if others == {"console"} else "all" if not others else ", ".join(fields)


def _defaults(fields: dict[str, FieldInfo]) -> str:
    defaults = {
        kind: "needed"
        if field.is_required()
        else f"`{text}`"
        if (text := default_text(field))
        else "none"
        for kind, field in fields.items()
    }
    values = set(defaults.values())
    return values.pop() if len(values) == 1 else "; ".join(f"{v} {k}" for k, v in defaults.items())


def main() -> int:
    """Rewrite the page."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
