"""``penstock dump|doctor``: any store directory, a broker's too, without touching it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import Session, counted, print_json, session_of

if TYPE_CHECKING:
    from rich.console import Console

    from storage.offline.repair import RepairReport

SEVERITY_STYLES: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "damage": "red"}
SHOWN_OF_A_KIND_MAX: Final = 20  # findings, before the rest is counted
KIND_STYLES: Final = {"message": "green", "damaged": "bold red", "gap": "red", "unqueued": "yellow"}

Directory = Annotated[Path, typer.Argument(help="Store directory, ours or a broker's.")]
Spec = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="JSON with a broker's settings under 'store': only where the files do not show their sizes.",
    ),
]


def dump(context: typer.Context, directory: Directory, spec: Spec = None) -> None:
    """Print everything a store holds: topics, offsets, queues, messages, files.

    The store is shown as it is, running or not; nothing on disk is changed.
    """
    from storage.offline import dump as dump_store

    session = session_of(context)
    lines = dump_store(existing(directory), read_spec(spec))
    if session.as_json:
        for line in lines:
            print_json(line)
        return
    console = session.console()
    for line in lines:
        kind = str(line.get("type", "?"))
        if not console.is_terminal:  # rich takes a quarter of a millisecond a line
            sys.stdout.write(f"{kind:<15} {_fields(line)}\n")
            continue
        console.print(f"{kind:<15}", style=KIND_STYLES.get(kind, "cyan"), end=" ")
        console.print(_fields(line), markup=False, overflow="ellipsis", no_wrap=True, crop=True)


def doctor(
    context: typer.Context,
    directory: Directory,
    spec: Spec = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Repair what is wrong of a stopped store; what changes is kept aside."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: say what it would do, and do nothing.")
    ] = False,
) -> None:
    """Check every file of a store, running or not, and say what is wrong, what it costs and what repairs it.

    Nothing is changed without --repair. Exit code 7 if anything is damaged, else 0: what the next start
    repairs without being asked, as after a crash, is a warning and no damage. A repair ends with 7 if
    records are damaged for good.
    """
    from storage.offline.doctor import doctor as examine
    from storage.offline.doctor import work_bytes

    session = session_of(context)
    if dry_run and not repair:
        raise CommandFailed("--dry-run goes with --repair", ExitCode.USAGE)
    given = existing(directory), read_spec(spec)
    with session.progress("checking, bytes", work_bytes(directory)) as advance:
        if repair:
            from storage.offline.repair import plan_repair
            from storage.offline.repair import repair as repair_store

            report = (plan_repair if dry_run else repair_store)(*given, advance=advance)
        else:
            findings = list(examine(*given, advance=advance))
    if repair:
        findings = _say_repair(session, directory, report)
    elif session.as_json:
        for finding in findings:
            print_json(finding)
    else:
        print_findings(session, findings)
    if any(finding["severity"] == "damage" for finding in findings):
        raise typer.Exit(ExitCode.DAMAGED)


def _say_repair(session: Session, directory: Path, report: RepairReport) -> list[dict[str, Any]]:
    """Print what was, or would be, repaired; return what is damaged after it, or before a dry run."""
    found = [each.as_line(str(directory)) for each in report.found if each.is_wrong]
    losses = [each.as_line(str(directory)) for each in report.losses]
    left = [each.as_line(str(directory)) for each in report.left]
    kept = [each.name for each in report.kept]
    where = str(report.directory) if report.directory is not None else ""
    if session.as_json:
        print_json(
            {"found": found, "kept": kept, "directory": where, "losses": losses, "left": left}
        )
    elif not found:
        session.console().print("nothing is wrong, and nothing was changed", markup=False)
    else:
        print_findings(session, found if not where else losses + left)
        are = "is" if len(kept) == 1 else "are"
        verb = f"{are} kept" if where else "would be kept"
        lines = [
            f"{counted(len(found), 'finding')}; as they were, {counted(len(kept), 'file')} {verb} aside"
        ]
        if where:
            lines[0] += f" in {where}"
            whole = "the store is whole" + (
                ", except for the warnings above: the reader repairs these when it starts"
                if left
                else ""
            )
            lines.append("what is damaged for good is above" if losses else whole)
        for line in lines:
            session.console().print(line, markup=False)
    return losses if where else found


def existing(directory: Path) -> Path:
    """Return the directory; an empty one may become a store and is not one yet."""
    with suppress(OSError):  # what cannot be listed is refused where it is opened
        if next(directory.iterdir(), None) is None:
            raise CommandFailed(f"{directory} is empty: no store", ExitCode.NOT_A_STORE)
    return directory


def read_spec(path: Path | None) -> dict[str, Any] | None:
    """Return a broker's settings from a file; nothing given is nothing returned."""
    if path is None:
        return None
    spec = read_json(path)
    if not isinstance(spec, dict):
        raise CommandFailed(f"{path}: not a JSON object", ExitCode.USAGE)
    return spec


def read_json(path: Path) -> Any:
    """Return what a file holds; what is not JSON is a usage error that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandFailed(f"{path}: not JSON: {error}", ExitCode.USAGE) from error


def _fields(line: dict[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in line.items() if name != "type")


def print_findings(session: Session, findings: list[dict[str, Any]]) -> None:
    """Print findings, of each kind the first ones, and what is to be done about them."""
    console = session.console()
    shown: Counter[tuple[str, str]] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        severity = str(finding["severity"])
        kind = severity, str(finding.get("kind", ""))
        if shown[kind] == SHOWN_OF_A_KIND_MAX and "command" in finding:
            left[kind] += 1
            continue
        shown[kind] += 1
        where = f"{finding['file']}: " if finding.get("file") else ""
        _print_finding(console, severity, f"{where}{finding['message']}")
    for (severity, name), count in left.items():
        _print_finding(console, severity, f"{name}: {count:,} more; --json prints all")
    _print_remedies(console, [finding for finding in findings if "command" in finding])


def _print_finding(console: Console, severity: str, text: str) -> None:
    console.print(f"{severity:<8}", style=SEVERITY_STYLES.get(severity, ""), end=" ")
    console.print(text, markup=False)


def _print_remedies(console: Console, findings: list[dict[str, Any]]) -> None:
    """Print for each kind of what is wrong how often it was found, what it costs and what repairs it."""
    if not findings:
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table("found", "kind", "cost", "what to do", box=box.SIMPLE_HEAD, pad_edge=False)
    counts = Counter((finding["kind"], finding["cost"], finding["command"]) for finding in findings)
    for (kind, cost, command), count in counts.items():
        table.add_row(f"{count:,}", *(escape(text) for text in (kind, cost, command)))
    console.print(table)
