"""``penstock profile add|list|show|use|remove``."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Any, Final

import typer

from cli.completion import profile_names
from cli.failures import CommandFailed, ExitCode
from cli.profiles import (
    NO_PROFILE,
    NO_TLS_CA,
    OPTIONS,
    WITH_TLS_CA,
    Profile,
    Profiles,
    load_profiles,
    save_profiles,
)
from cli.session import session_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

app = typer.Typer(
    help="Keep addresses, TLS files and keys under a name.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Name of the profile.")]
Known = Annotated[str, typer.Argument(help="Name of the profile.", autocompletion=profile_names)]


@app.command()
def add(
    context: typer.Context,
    name: Name,
    access_key: Annotated[
        str,
        typer.Option(
            help="The user's name. Its secret key is PENSTOCK_SECRET_KEY, or is asked for."
        ),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Also one that there is.")] = False,
) -> None:
    """Keep the options that are given under a name: --writer, --reader, --indexer, --timeout, --tls-ca and so on.

    Options that are not given keep their defaults. Files of TLS are kept by their full paths.
    """
    if not _NAME.fullmatch(name) or name == NO_PROFILE:
        raise CommandFailed(f"a profile cannot be named {name!r}", ExitCode.USAGE)
    profiles = load_profiles()
    if name in profiles.profiles and not replace:
        raise CommandFailed(f"there is a profile {name!r}; --replace replaces it", ExitCode.USAGE)
    profile = _given_options(context)
    if any(profile.get(option) for option in WITH_TLS_CA) and not profile.get("tls_ca"):
        raise CommandFailed(NO_TLS_CA, ExitCode.USAGE)
    if access_key:
        profile |= {"access_key": access_key, "secret_key": _secret_key()}
    if not profile:
        raise CommandFailed(
            "nothing to keep: give --writer, --reader, --tls-ca, --access-key or the like",
            ExitCode.USAGE,
        )
    profiles.profiles[name] = profile
    save_profiles(profiles)
    session_of(context).say(
        f"profile [bold]{name}[/]: penstock --profile {name} ..., or penstock profile use {name}",
        _shown(profiles, name),
    )


def _given_options(context: typer.Context) -> Profile:
    """Return the options of all commands that the command line gives, by their names in a profile."""
    root = context.find_root()
    given: Profile = {}
    for option in OPTIONS:
        source = root.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            value = root.params[option]
            is_file = option in ("tls_ca", "tls_cert", "tls_key") and value != "public"
            given[option] = os.path.abspath(value) if is_file and value else value  # noqa: PTH100  links stay
    return given


def _secret_key() -> str:
    from penstock.credentials import SECRET_KEY_VARIABLE

    secret_key = os.environ.get(SECRET_KEY_VARIABLE, "")  # noqa: TID251  as the client reads it
    if not secret_key and sys.stdin is not None and sys.stdin.isatty():
        secret_key = typer.prompt("Secret key", hide_input=True, default="", show_default=False)
    if not secret_key:
        raise CommandFailed(
            f"--access-key needs its secret key: set {SECRET_KEY_VARIABLE}", ExitCode.USAGE
        )
    return secret_key


@app.command("list")
def list_profiles(context: typer.Context) -> None:
    """List the profiles, and which one is in use."""
    profiles = load_profiles()
    rows = [
        {
            "profile": name,
            "in_use": name == profiles.use,
            "writer": profile.get("writer", ""),
            "reader": profile.get("reader", ""),
            "tls": bool(profile.get("tls_ca")),
            "access_key": profile.get("access_key", ""),
        }
        for name, profile in sorted(profiles.profiles.items())
    ]
    session_of(context).show(rows, empty="no profiles yet: penstock profile add NAME --writer ...")


@app.command()
def show(context: typer.Context, name: Known) -> None:
    """Show a profile; of a secret key that there is one."""
    profiles = load_profiles()
    profiles.get(name)
    shown = _shown(profiles, name)
    rows = [{"option": option, "value": value} for option, value in shown.items()]
    session_of(context).show(rows, json_rows=[shown])


@app.command()
def use(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help=f"Name of the profile; {NO_PROFILE}: none of them.", autocompletion=profile_names
        ),
    ],
) -> None:
    """Have commands use a profile that are given no --profile and no PENSTOCK_PROFILE."""
    profiles = load_profiles()
    if name != NO_PROFILE:
        profiles.get(name)
    profiles.use = "" if name == NO_PROFILE else name
    save_profiles(profiles)
    session_of(context).say(
        f"profile [bold]{name}[/] is in use" if profiles.use else "no profile is in use",
        {"use": profiles.use},
    )


@app.command()
def remove(context: typer.Context, name: Known) -> None:
    """Remove a profile, with the secret key that it holds."""
    profiles = load_profiles()
    profiles.get(name)
    del profiles.profiles[name]
    if profiles.use == name:
        profiles.use = ""
    save_profiles(profiles)
    session_of(context).say(f"profile [bold]{name}[/] removed", {"removed": name})


def _shown(profiles: Profiles, name: str) -> dict[str, Any]:
    profile = dict(profiles.get(name))
    if "secret_key" in profile:
        profile["secret_key"] = "(kept)"  # noqa: S105  instead of it
    return {"profile": name, "in_use": profiles.use == name, **profile}
