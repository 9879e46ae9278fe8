"""Profiles: addresses, TLS files and keys of a store's services under a name, in one TOML file.

The file is ``penstock/profiles.toml`` in ``$XDG_CONFIG_HOME``, or else in ``~/.config``; it is its
owner's alone, for it may hold a secret key::

    use = "prod"

    [profiles.prod]
    writer = "store.example:5801"
    tls_ca = "/etc/penstock/ca.pem"
    access_key = "ann"
    secret_key = "..."
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer

from cli.failures import CommandFailed, ExitCode
from penstock.addresses import DEFAULT_INDEXER, DEFAULT_READER, DEFAULT_WRITER

NO_PROFILE: Final = "none"
"""The name by which no profile is chosen, whatever the file says is in use."""
OPTIONS: Final = (
    "writer", "reader", "indexer", "timeout", "tls_ca", "tls_cert", "tls_key", "tls_server_name",
)  # fmt: skip
"""Options of all commands that a profile may have; its other names are access_key and secret_key."""
KEYS: Final = ("access_key", "secret_key")
WITH_TLS_CA: Final = ("tls_cert", "tls_key", "tls_server_name")
NO_TLS_CA: Final = "without --tls-ca calls are in plain text: give it with --tls-cert, --tls-key, --tls-server-name"

Profile = dict[str, Any]


@dataclass(slots=True)
class Profiles:
    """What the file holds: profiles by name, and the one that commands use which are given none."""

    use: str = ""
    profiles: dict[str, Profile] = field(default_factory=dict)

    def get(self, name: str) -> Profile:
        """Return a profile. Raises CommandFailed, a usage error, if there is none of that name."""
        found = self.profiles.get(name)
        if found is None:
            known = ", ".join(sorted(self.profiles)) or "there are none"
            raise CommandFailed(
                f"no profile {name!r}; penstock profile list: {known}", ExitCode.USAGE
            )
        return found

    def chosen(self, name: str) -> Profile:
        """Return the profile of a name, of "" the one in use; nothing where none is chosen."""
        name = name or self.use
        return self.get(name) if name and name != NO_PROFILE else {}


def forget_environment() -> None:
    """Drop the variables of all that a profile may have, for this process and those that it starts.

    A profile is one set: another store's address or keys do not mix into it.
    """
    for name in (*OPTIONS, *KEYS, "gateway"):
        os.environ.pop(f"PENSTOCK_{name.upper()}", None)  # noqa: TID251  reads nothing


def keys_for(profile: Profile, writer: str, reader: str, indexer: str) -> tuple[str, str]:
    """Return a profile's access key and secret key; empty ones for addresses that are not all its own."""
    own = (
        profile.get("writer", DEFAULT_WRITER),
        profile.get("reader", DEFAULT_READER),
        profile.get("indexer", DEFAULT_INDEXER),
    )
    if own != (writer, reader, indexer):
        return "", ""
    return profile.get("access_key", ""), profile.get("secret_key", "")


def profiles_file() -> Path:
    """Return where the profiles are, whether the file is there or not."""
    return Path(typer.get_app_dir("penstock")) / "profiles.toml"


def load_profiles() -> Profiles:
    """Read the file; none is no profiles. Raises CommandFailed, a usage error, for what it cannot mean."""
    path = profiles_file()
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}", ExitCode.USAGE) from error
    import tomllib

    try:
        document = tomllib.loads(text.decode())
    except ValueError as error:  # of TOML, and of UTF-8
        raise CommandFailed(f"{path}: not TOML: {error}", ExitCode.USAGE) from error
    use, profiles = document.pop("use", ""), document.pop("profiles", {})
    if document or not isinstance(use, str) or not isinstance(profiles, dict):
        raise CommandFailed(f"{path}: has use and [profiles.NAME], no more", ExitCode.USAGE)
    for name, profile in profiles.items():
        _check(path, name, profile)
    return Profiles(use, profiles)


def _check(path: Path, name: str, profile: object) -> None:
    if not isinstance(profile, dict):
        raise CommandFailed(f"{path}: profiles.{name} is no table", ExitCode.USAGE)
    for option, value in profile.items():
        if option not in (*OPTIONS, *KEYS):
            raise CommandFailed(f"{path}: profiles.{name} cannot have {option}", ExitCode.USAGE)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number if option == "timeout" else isinstance(value, str)):
            kind = "number" if option == "timeout" else "text"
            raise CommandFailed(f"{path}: profiles.{name}.{option} is no {kind}", ExitCode.USAGE)


def save_profiles(profiles: Profiles) -> None:
    """Replace the file by one that its owner alone may read."""
    import tomli_w

    path = profiles_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    use = {"use": profiles.use} if profiles.use else {}
    text = tomli_w.dumps({**use, "profiles": profiles.profiles})
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".profiles-")  # of mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
