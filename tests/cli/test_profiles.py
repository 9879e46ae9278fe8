"""Profiles: what is kept, which of flag, environment and profile counts, and what a bad file says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from run_cli import json_lines, penstock
from typer.testing import Result

from cli.failures import ExitCode
from cli.main import app
from cli.session import Session
from penstock.credentials import given_credentials


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY", "PENSTOCK_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "penstock" / "profiles.toml"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions of the commands that a test runs; they do not call anybody."""
    made: list[Session] = []

    def client(self: Session) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "client", client)
    return made


def add(name: str, *options: object) -> Result:
    done = penstock("profile", "add", name, *options)
    assert done.exit_code == ExitCode.DONE, done.stderr
    return done


def test_a_profile_keeps_the_options_that_are_given_and_no_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_READER", "elsewhere:2")
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "s3cret")
    add("prod", "--writer", "store:1", "--timeout", 3, "--tls-ca", "ca.pem", "--access-key", "ann")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [shown] = json_lines(penstock("profile", "show", "prod", "--json"))
    assert shown == {
        "profile": "prod",
        "in_use": False,
        "writer": "store:1",
        "timeout": 3.0,
        "tls_ca": str(Path.cwd() / "ca.pem"),
        "access_key": "ann",
        "secret_key": "(kept)",
    }
    assert "s3cret" in file.read_text()


def test_what_counts_first(session: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    add("prod", "--writer", "profile:1", "--indexer", "profile:3")

    def environment() -> None:
        monkeypatch.setenv("PENSTOCK_WRITER", "environment:1")
        monkeypatch.setenv("PENSTOCK_READER", "environment:2")

    environment()
    penstock("topic", "list", "--profile", "prod")
    penstock("topic", "list", "--profile", "prod", "--reader", "flag:2")
    environment()
    penstock("--profile", "none", "topic", "list")
    monkeypatch.setenv("PENSTOCK_PROFILE", "prod")
    penstock("topic", "list", "--reader", "flag:2")

    assert [(each.writer, each.reader, each.indexer) for each in session] == [
        ("profile:1", "127.0.0.1:5802", "profile:3"),
        ("profile:1", "flag:2", "profile:3"),
        ("environment:1", "environment:2", "127.0.0.1:5803"),
        ("environment:1", "flag:2", "profile:3"),
    ]


def test_the_profile_in_use_is_taken_where_none_is_named(session: list[Session]) -> None:
    add("prod", "--writer", "prod:1")
    add("test", "--writer", "test:1")
    assert penstock("profile", "use", "prod").exit_code == ExitCode.DONE
    for named in ((), ("--profile", "test")):
        penstock("topic", "list", *named)
    penstock("profile", "use", "none")
    penstock("topic", "list")
    penstock("profile", "use", "prod")
    assert penstock("profile", "remove", "prod").exit_code == ExitCode.DONE
    penstock("topic", "list")

    default = "127.0.0.1:5801"
    assert [each.writer for each in session] == ["prod:1", "test:1", default, default]
    listed = json_lines(penstock("profile", "list", "--json"))
    assert [(each["profile"], each["in_use"]) for each in listed] == [("test", False)]


def test_keys_of_one_store_do_not_go_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "kept")
    add("prod", "--writer", "prod:1", "--access-key", "ann")
    monkeypatch.delenv("PENSTOCK_SECRET_KEY")
    add("trial", "--writer", "trial:1")
    given: list[tuple[str, str]] = []

    class Client:
        def __init__(self, *, access_key: str, secret_key: str, **_: object) -> None:
            own = given_credentials(access_key, secret_key)
            given.append((own.access_key, own.secret_key) if own else ("", ""))
            raise KeyboardInterrupt

    monkeypatch.setattr("penstock.Client", Client)

    def keys(*arguments: str, **environment: str) -> tuple[str, str]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(f"PENSTOCK_{name}", value)
            assert penstock("topic", "list", *arguments).exit_code == ExitCode.INTERRUPTED
        return given.pop()

    bob = {"ACCESS_KEY": "bob", "SECRET_KEY": "own"}
    assert keys("--profile", "prod") == ("ann", "kept")
    assert keys("--profile", "prod", **bob) == ("ann", "kept")
    assert keys("--profile", "trial", **bob) == ("", "")
    assert keys("--profile", "prod", "--writer", "other:1") == ("", "")
    assert keys(PROFILE="prod", READER="other:2") == ("", "")
    assert keys(PROFILE="prod", **bob) == ("bob", "own")
    assert keys(PROFILE="prod") == ("ann", "kept")


@pytest.mark.parametrize(
    ("gateway", "key"), [("prod:8081", "ann"), ("other:8081", None), ("", "ann")]
)
def test_keys_of_a_profile_go_to_a_gateway_on_its_hosts(gateway: str, key: str | None) -> None:
    session = Session(writer="prod:1", access_key="ann", secret_key="kept")
    given = session.credentials(gateway)
    assert (given.access_key if given else None) == key


@pytest.mark.parametrize("command", [("profile", "add", "prod"), ("topic", "list")])
def test_a_certificate_without_authorities_is_refused_for_calls_would_be_in_plain_text(
    file: Path, command: tuple[str, ...]
) -> None:
    done = penstock(*command, "--writer", "a:1", "--tls-cert", "c.pem", "--tls-key", "c.key")
    assert done.exit_code == ExitCode.USAGE
    assert "plain text" in done.stderr
    assert not file.exists()


def test_a_profile_with_a_certificate_alone_has_no_tls(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("[profiles.half]\nwriter='a:1'\ntls_cert='c.pem'\ntls_key='c.key'\n")
    assert "plain text" in penstock("topic", "list", "--profile", "half").stderr
    [listed] = json_lines(penstock("profile", "list", "--json"))
    assert listed["tls"] is False


def test_a_service_s_certificate_in_the_environment_stops_no_command(
    session: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TLS_CERT", "server.pem")
    monkeypatch.setenv("PENSTOCK_TLS_KEY", "server.key")
    penstock("topic", "list")
    assert [each.tls for each in session] == [None]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--profile", "gone", "topic", "list"), "no profile 'gone'; penstock profile list: prod"),
        (("profile", "use", "gone"), "no profile 'gone'"),
        (("profile", "add", "prod", "--writer", "h:1"), "there is a profile 'prod'"),
        (("profile", "add", "none", "--writer", "h:1"), "cannot be named 'none'"),
        (("profile", "add", "more"), "nothing to keep"),
        (("profile", "add", "more", "--access-key", "ann"), "set PENSTOCK_SECRET_KEY"),
        (("profile", "add", "more", "--writer", "nowhere"), "is not HOST:PORT"),
    ],
)
def test_wrong_use_of_profiles_is_one_line_and_changes_nothing(
    file: Path, arguments: tuple[str, ...], told: str
) -> None:
    add("prod", "--writer", "store:1")
    before = file.read_bytes()

    done = penstock(*arguments)

    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("profiles", "not TOML"),
        ("\udcff", "not TOML"),
        ("[profile.prod]\nwriter = 'a:1'\n", "has use and [profiles.NAME]"),
        ("[profiles]\nprod = 'a:1'\n", "profiles.prod is no table"),
        ("[profiles.prod]\nwrite = 'a:1'\n", "profiles.prod cannot have write"),
        ("[profiles.prod]\nwriter = 5801\n", "profiles.prod.writer is no text"),
        ("[profiles.prod]\ntimeout = '5'\n", "profiles.prod.timeout is no number"),
        ("use = 'gone'\n", "no profile 'gone'"),
    ],
)
def test_a_file_that_cannot_be_meant_is_a_usage_error_that_names_it(
    file: Path, text: str, told: str
) -> None:
    file.parent.mkdir()
    file.write_bytes(text.encode(errors="surrogateescape"))

    done = penstock("topic", "list")

    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
    assert str(file) in done.stderr or "gone" in told


@pytest.mark.parametrize(
    "command",
    [("writer", "--help"), ("dump", "--help"), ("profile", "list"), ("profile", "use", "none")],
)
def test_commands_that_take_no_profile_run_whatever_is_in_use(
    file: Path, command: tuple[str, ...]
) -> None:
    file.parent.mkdir()
    file.write_text("use = 'gone'")
    assert penstock(*command).exit_code == ExitCode.DONE


def test_a_file_that_is_not_one_s_own_is_named(file: Path) -> None:
    file.mkdir(parents=True)
    done = penstock("topic", "list")
    assert (done.exit_code, str(file) in done.stderr) == (ExitCode.USAGE, True)


def test_the_command_line_has_no_secret_flag() -> None:
    """It would stand in the list of processes."""
    assert app.registered_callback is not None
    assert "--secret-key" not in penstock("profile", "add", "--help").stdout


def test_the_console_takes_options_and_keys_of_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "kept")
    add("prod", "--writer", "prod:1", "--access-key", "ann")
    monkeypatch.delenv("PENSTOCK_SECRET_KEY")
    started: list[tuple[list[str], str | None]] = []

    def main(arguments: list[str]) -> int:
        started.append((arguments, os.environ.pop("PENSTOCK_SECRET_KEY", None)))
        os.environ.pop("PENSTOCK_ACCESS_KEY", None)
        return 0

    monkeypatch.setattr("services.console.__main__.main", main)
    penstock("--profile", "prod", "console", "--listen", "127.0.0.1:1")
    penstock("--profile", "prod", "console", "--writer", "other:1")
    penstock("--reader", "r:2", "console")

    assert started == [
        (["--writer", "prod:1", "--listen", "127.0.0.1:1"], "kept"),
        (["--writer", "prod:1", "--writer", "other:1"], None),
        (["--reader", "r:2"], None),
    ]
