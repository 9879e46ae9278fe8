"""``penstock user create|list|update|delete``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import counted, session_of
from cli.times import parsed

if TYPE_CHECKING:
    from cli.session import Session
    from penstock.calls.accounts import Limits, UserKind

app = typer.Typer(
    help="Create, list, change and delete users. PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY say who asks.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Name of the user; also its access key.")]
Limit = Annotated[
    int | None, typer.Option(min=0, help="Calls, and frames of streams, in a second.")
]
Super = Annotated[bool, typer.Option("--super", help="May do everything.")]
Service = Annotated[
    bool, typer.Option("--service", help="For a gateway that runs on another machine.")
]


def _size(text: str) -> int:
    from services.config.values import parse_size

    return parse_size(text)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    is_super: Super = False,
    is_service: Service = False,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Directory of a store that is stopped or not made yet: how the first super user is made. One that"
            " is there gets a new secret key, and may call again."
        ),
    ] = None,
) -> None:
    """Create a user and print its access key and secret key. Nothing shows the secret key again."""
    session = session_of(context)
    kind = _kind(is_super=is_super, is_service=is_service)
    if store is None:
        with session.client() as client:
            secret_key = client.create_user(name, kind).secret_key
    else:
        secret_key = _create_offline(store, name, kind)
    _show_secret(session, name, secret_key)


@app.command("list")
def list_users(context: typer.Context) -> None:
    """List the users."""
    session = session_of(context)
    with session.client() as client:
        users = client.users()
    session.show(
        [
            {
                "user": user.name,
                "kind": user.kind,
                "enabled": user.enabled,
                "secrets": user.secret_count,
                "limits": dataclasses.asdict(user.limits)
                if session.as_json
                else _limits_text(user.limits),
            }
            for user in users
        ],
        empty="no users",
    )


@app.command()
def update(
    context: typer.Context,
    name: Name,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="May call, or may not for now.")
    ] = None,
    is_super: Annotated[
        bool | None,
        typer.Option("--super/--normal", help="May do everything, or what policies allow."),
    ] = None,
    new_secret: Annotated[
        bool,
        typer.Option("--new-secret", help="Print a second secret key; the one before stays good."),
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old-secret", help="The newest secret key alone stays good.")
    ] = False,
    requests_per_second: Limit = None,
    bytes_per_second: Annotated[
        int | None,
        typer.Option(parser=parsed(_size), metavar="SIZE", help="Of requests and answers."),
    ] = None,
    calls_max: Annotated[int | None, typer.Option(min=0, help="Calls under way at once.")] = None,
    call_bytes_max: Annotated[
        int | None,
        typer.Option(
            parser=parsed(_size),
            metavar="SIZE",
            help="Bytes of those calls that memory holds.",
        ),
    ] = None,
    connections_max: Annotated[
        int | None, typer.Option(min=0, help="Connections with calls under way.")
    ] = None,
    reset_limits: Annotated[
        bool, typer.Option("--reset-limits", help="No others of its own than are given now.")
    ] = False,
) -> None:
    """Change a user. To rotate its key: --new-secret, change the applications, --drop-old-secret.

    Limits are of each service, and in force at once; 0 is none.
    """
    from penstock import Limits

    session = session_of(context)
    limits = Limits(
        requests_per_second=requests_per_second,
        bytes_per_second=bytes_per_second,
        calls_max=calls_max,
        call_bytes_max=call_bytes_max,
        connections_max=connections_max,
    )
    changes = (
        drop_old or reset_limits or enabled is not None or is_super is not None
    ) or limits != Limits()
    if new_secret and changes:
        raise CommandFailed("--new-secret is given alone", ExitCode.USAGE)
    if not new_secret and not changes:
        raise CommandFailed(
            "nothing to change: give --enable, --disable, --super, --normal, --new-secret, --drop-old-secret or a"
            " limit",
            ExitCode.USAGE,
        )
    with session.client() as client:
        if new_secret:
            _show_secret(session, name, client.add_secret(name).secret_key)
            return
        kind: UserKind | None = None if is_super is None else "super" if is_super else "normal"
        user = client.update_user(
            name,
            kind=kind,
            enabled=enabled,
            drop_old_secrets=drop_old,
            limits=limits,
            reset_limits=reset_limits,
        )
    state = "enabled" if user.enabled else "disabled"
    session.say(
        f"user [bold]{name}[/]: {user.kind}, {state}, {counted(user.secret_count, 'secret key')}, limits: {_limits_text(user.limits)}",
        dataclasses.asdict(user),
    )


@app.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a user and its policies; its open calls end."""
    session = session_of(context)
    session.confirm(f"Delete user {name} and its policies?", yes=yes)
    with session.client() as client:
        client.delete_user(name)
    session.say(f"deleted user [bold]{name}[/]", {"name": name})


def _limits_text(limits: Limits) -> str:
    given = dataclasses.asdict(limits).items()
    texts = [
        f"{name.replace('_', ' ')} {value or 'none'}" for name, value in given if value is not None
    ]
    return ", ".join(texts) or "as the services are set"


def _kind(*, is_super: bool, is_service: bool) -> UserKind:
    if is_super and is_service:
        raise CommandFailed("a user is either --super or --service", ExitCode.USAGE)
    return "super" if is_super else "service" if is_service else "normal"


def _create_offline(store: Path, name: str, kind: UserKind) -> str:
    from storage.accounts.account_table import AccountTable
    from storage.accounts.rules import UserKind as StoredKind
    from storage.files.filesystem import FileSystem
    from storage.stopped.locks import stopped_store

    filesystem = FileSystem()
    filesystem.make_directory(store)
    with stopped_store(store):
        table = AccountTable(filesystem, store / "config")
        return table.restore_user(name, StoredKind(kind)).secrets[-1]


def _show_secret(session: Session, name: str, secret_key: str) -> None:
    keys = {"access_key": name, "secret_key": secret_key}
    session.show([keys], title="The secret key is shown once: keep it.")
