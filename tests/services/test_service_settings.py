"""Settings come from flags, variables and a file, in that order, and every field is documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates

from penstock import TLS
from services import supervisor
from services.config.flags import flag_of, load
from services.config.groups import help_entries
from services.config.settings import (
    KINDS,
    ProcessSettings,
    ReaderSettings,
    ServeSettings,
    WriterSettings,
)
from services.config.values import is_open_to_network
from services.supervisor import child_arguments
from storage.config import StoreConfig


def settings(*flags: str) -> WriterSettings:
    return load(WriterSettings, ["--store", "s", *flags], prog="penstock writer")


def test_flags_win_over_variables_and_variables_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('flush_interval_ms = 1\ncommit_interval_ms = 1\nbody_size_max = "1KiB"\n')
    monkeypatch.setenv("PENSTOCK_FLUSH_INTERVAL_MS", "2")
    monkeypatch.setenv("PENSTOCK_COMMIT_INTERVAL_MS", "2")
    found = settings("--config", str(file), "--flush-interval-ms", "3")
    assert (found.flush_interval_ms, found.commit_interval_ms, found.body_size_max) == (3, 2, 1024)


def test_the_file_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('flush_mode = "sync"\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    assert settings().store_config().flush_mode == "sync"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ("--warm-cache-bytes-max", "much"),
            "--warm-cache-bytes-max: 'much' is not a size: give bytes, for instance 64MiB, or 'auto'",
        ),
        (
            ("--commit-log-file-size", "-4"),
            "--commit-log-file-size: '-4' is not a size: give bytes, for instance 64MiB",
        ),
        (
            ("--listen", "localhost"),
            "--listen: 'localhost' is not HOST:PORT; add the port, like 127.0.0.1:5801",
        ),
        (
            ("--listen", "::1:5801"),
            "--listen: '::1:5801' is not HOST:PORT; put the IPv6 address in brackets, like [::1]:5801",
        ),
        (
            ("--listen", "localhost:65536"),
            "--listen: 'localhost:65536' is not HOST:PORT; the port is a number from 0 to 65535",
        ),
        (("--frob",), "No such option: --frob; see penstock writer --help"),
        (("--listen",), "Option '--listen' requires an argument; see penstock writer --help"),
    ],
)
def test_wrong_flags_are_reported_in_one_line(
    flags: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        settings(*flags)
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"penstock writer: {problem}\n"


def test_a_wrong_value_is_reported_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("flush_interval_ms = 0\n")
    given: list[tuple[str, ...]] = [("--config", str(file)), (), ("--flush-interval-ms", "0")]
    for flags in given:
        if flags != given[0]:
            monkeypatch.setenv("PENSTOCK_FLUSH_INTERVAL_MS", "0")
        with pytest.raises(SystemExit):
            settings(*flags)
    named = [
        line.removeprefix("penstock writer: ") for line in capsys.readouterr().err.splitlines()
    ]
    assert [line.rpartition(": ")[0] for line in named] == [
        f"settings file {file}: flush_interval_ms",
        "PENSTOCK_FLUSH_INTERVAL_MS",
        "--flush-interval-ms",
    ]


@pytest.mark.parametrize("variable", ["PULL_BYTES_MAX", "STORE_WAIT_SECONDS", "STREAM_BATCHES_MAX"])
def test_serve_makes_nothing_with_a_wrong_setting_of_one_service(
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is reported in one line before any service starts, and the store is not made."""
    monkeypatch.setenv(f"PENSTOCK_{variable}", "x")
    with pytest.raises(SystemExit) as caught:
        supervisor.main(["--store", str(tmp_path / "store")])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"penstock serve: PENSTOCK_{variable}: ")
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_a_misspelt_name_in_the_file_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("flush_mod = 1\n")
    with pytest.raises(SystemExit) as caught:
        settings("--config", str(file))
    assert caught.value.code == 2
    assert "flush_mod" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64MiB", 64 << 20), ("1GB", 10**9)])
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    assert settings("--commit-log-file-size", text).commit_log_file_size == size


@pytest.mark.parametrize("name", ProcessSettings.model_fields)
def test_what_every_process_takes_is_declared_once_and_reaches_all_of_them(
    name: str, certificates: Certificates
) -> None:
    """A field of a group of ProcessSettings is a flag of each service, and `serve` passes it on to its children."""
    tls = certificates.settings
    given: dict[str, Any] = {
        "log_level": "error", "log_format": "json", "access_log": "all", "rpc_server": "aio",
        "tls_server_name": "db", "traces_endpoint": "c:4317", "traces_ratio": 0.5, **tls,
    }  # fmt: skip
    value = given.get(name, 1 << 20)
    flags = [flag_of(name), str(value)]
    if name == "plaintext":
        value, flags = True, ["--plaintext"]
    for other in tls if name in tls else ():  # which go together
        flags += [flag_of(other), str(tls[other])]
    if name not in ("config", "metrics_listen"):  # whose values are serve's own
        serve = load(ServeSettings, ["--store", "s", *flags], prog="serve")
        for service, kind in supervisor.SERVICES.items():
            child = load(kind, child_arguments(service, serve), prog=service)
            assert getattr(child, name) == value
    assert (
        len({help_entries(kind)[name] for kind in KINDS.values() if name in kind.model_fields}) == 1
    )


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_setting_has_a_place_and_a_meaning(kind: type[ProcessSettings]) -> None:
    entries = help_entries(kind)
    assert entries.keys() == kind.model_fields.keys()
    assert [name for name, entry in entries.items() if not entry.meaning] == []


@pytest.mark.parametrize("kind", KINDS.values())
def test_help_names_every_flag_in_groups_and_the_essential_ones_first(
    kind: type[ProcessSettings],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    with pytest.raises(SystemExit) as caught:
        load(kind, ["--help"], prog="penstock x")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    flags = re.findall(r"^│ (--[a-z-]+)", text, re.MULTILINE)
    assert sorted(flags) == sorted(["--help", *map(flag_of, kind.model_fields)])
    assert flags[0] == ("--store" if "store" in kind.model_fields else "--listen")
    if issubclass(kind, ProcessSettings):  # the console is none
        assert re.search(r"--message-bytes-max +SIZE .*\[default: 16MiB\]", text)
    assert "PENSTOCK_STORE" in text  # of the epilog


def test_a_supervisor_passes_on_what_each_child_understands() -> None:
    serve = load(
        ServeSettings,
        [
            "--store", "s", "--flush-mode", "sync", "--log-level", "warning", "--transient-pool",
            "--no-append-property-crc", "--commit-log-file-size", "1MiB", "--warm-cache-bytes-max", "3MiB",
            "--reader-listen", "127.0.0.1:7",
        ],
        prog="penstock serve",
    )  # fmt: skip
    writer = load(WriterSettings, child_arguments("writer", serve), prog="w")
    reader = load(ReaderSettings, child_arguments("reader", serve), prog="r")
    assert writer.store_config() == StoreConfig(
        flush_mode="sync",
        transient_pool=True,
        append_property_crc=False,
        commit_log_file_size=1 << 20,
        warm_cache_bytes_max=3 << 20,
    )
    assert (reader.log_level, reader.listen, reader.supervised) == ("warning", "127.0.0.1:7", True)
    assert str(reader.store) == "s"


def test_the_reader_of_a_supervisor_has_the_gateways_port_and_what_was_set_of_it(
    certificates: Certificates,
) -> None:
    cert, key = certificates.server
    serve = load(
        ServeSettings,
        [
            "--store", "s", "--writer-listen", "127.0.0.1:7", "--push-lease-ms", "3000",
            "--tls-key", str(key), "--tls-cert", str(cert), "--tls-ca", str(certificates.ca),
            "--tls-client-ca", str(certificates.ca),
        ],
        prog="penstock serve",
    )  # fmt: skip
    reader = load(ReaderSettings, child_arguments("reader", serve), prog="r")
    gateway = reader.of_gateway()

    assert (reader.listen, reader.writer_address) == ("127.0.0.1:5802", "127.0.0.1:7")
    assert (gateway.listen, gateway.push_lease_ms) == ("127.0.0.1:8081", 3000)
    assert (reader.tls_key, gateway.tls_key) == (key, key)
    assert (reader.client_ca, gateway.client_ca) == (certificates.ca, None)
    assert reader.tls_of_calls == TLS(ca=str(certificates.ca), cert=str(cert), key=str(key))


def test_without_an_address_no_gateway_is_served_whatever_the_variables_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_GATEWAY_LISTEN", "127.0.0.1:8081")
    serve = load(ServeSettings, ["--store", "s", "--gateway-listen", "none"], prog="penstock serve")
    reader = load(ReaderSettings, child_arguments("reader", serve), prog="r")

    assert reader.gateway_listen == ""
    assert [name for name in supervisor.listens_of(serve) if "gateway" in name] == []


def test_a_gateways_port_that_the_reader_cannot_serve_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("writer.toml").write_text('writer_address = ""\n')
    with pytest.raises(SystemExit):
        load(
            ReaderSettings,
            ["--store", "s", "--gateway-listen", "127.0.0.1:8", "--config", "writer.toml"],
            prog="penstock reader",
        )
    assert "--writer-address is needed with --gateway-listen" in capsys.readouterr().err


SPLIT = ("--writer-endpoint", "10.0.0.1:5801", "--reader-endpoint", "10.0.0.1:5802")


def test_a_supervisor_with_endpoints_tells_writer_and_reader_of_each_other() -> None:
    flags = [
        "--store", "s", "--reader-listen", "0.0.0.0:8", "--plaintext", "--push-lease-ms", "3000", *SPLIT,
    ]  # fmt: skip
    serve = load(ServeSettings, flags, prog="penstock serve")
    writer = load(WriterSettings, child_arguments("writer", serve), prog="w")
    reader = load(ReaderSettings, child_arguments("reader", serve), prog="r")

    assert (writer.reader_address, writer.writer_endpoint) == ("127.0.0.1:8", "10.0.0.1:5801")
    assert (reader.writer_address, reader.reader_endpoint) == ("127.0.0.1:5801", "10.0.0.1:5802")
    assert (reader.push_lease_ms, reader.splits_routes) == (3000, True)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (SPLIT[:2], "--writer-endpoint and --reader-endpoint are given together or not at all"),
        (
            (*SPLIT, "--reader-listen", "127.0.0.1:0"),
            "--writer-listen and --reader-listen need ports with --writer-endpoint",
        ),
        (("--writer-endpoint", "10.0.0.1:0"), "--writer-endpoint: '10.0.0.1:0' is not HOST:PORT"),
    ],
)
def test_endpoints_that_cannot_be_served_are_one_line(
    flags: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load(ServeSettings, ["--store", "s", *flags], prog="penstock serve")
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listen", "is_open"),
    [
        ("0.0.0.0:0", True),
        ("[::]:0", True),
        ("192.0.2.1:0", True),
        ("127.0.0.1:0", False),
        ("localhost:0", False),
        ("[::1]:0", False),
        ("[::ffff:127.0.0.1]:0", False),
        ("[::ffff:0.0.0.0]:0", True),
    ],
)
def test_every_address_of_the_machine_is_open_to_the_network_and_loopback_is_not(
    listen: str, is_open: bool
) -> None:
    assert is_open_to_network(listen) is is_open


OPEN = "0.0.0.0:5801"


@pytest.mark.parametrize(
    ("kind", "flags", "problem"),
    [
        (WriterSettings, ("--listen", OPEN), "--listen: 0.0.0.0:5801 is not of this machine alone"),
        (ServeSettings, ("--gateway-listen", OPEN), "--gateway-listen: 0.0.0.0:5801 is not of"),
        (ReaderSettings, ("--writer-address", "db:1"), "--writer-address: db:1 is not of this"),
        (WriterSettings, ("--listen", OPEN, "--plaintext"), ""),
        (WriterSettings, ("--listen", OPEN, "TLS"), ""),
        (ReaderSettings, ("--writer-address", "db:1", "--plaintext"), ""),
        (ReaderSettings, ("--writer-address", "db:1", "--tls-ca", "CA"), ""),
        (ReaderSettings, ("--writer-address", "db:1", "--tls-ca", "public"), ""),
        (ReaderSettings, ("--writer-address", "db:1", "TLS"), "give --tls-ca, or --plaintext"),
        (WriterSettings, ("--tls-cert", "CERT"), "--tls-cert and --tls-key are given together"),
        (WriterSettings, ("--tls-client-ca", "CA"), "--tls-cert is needed with --tls-client-ca"),
        (ReaderSettings, ("--gateway-client-ca", "CA"), "--tls-cert is needed with --gateway-client"),
        (ServeSettings, ("TLS",), "--tls-ca is needed with --tls-cert"),
        (ServeSettings, ("TLS", "--tls-ca", "CA"), ""),
        (WriterSettings, ("TLS", "--tls-ca", "/nowhere.pem"), "/nowhere.pem: No such file"),
        (WriterSettings, ("TLS", "--tls-client-ca", "KEY"), "is a private key, not a certificate"),
        (WriterSettings, ("--tls-cert", "CERT", "--tls-key", "CA"), "holds no private key in PEM"),
        (ServeSettings, ("TLS", "--tls-ca", "CA", "--tls-client-ca", "CA", "SPLIT"), "--tls-client-ca keeps"),
    ],
)  # fmt: skip
def test_plaintext_is_asked_for_and_tls_has_its_files(
    kind: type[ProcessSettings],
    flags: tuple[str, ...],
    problem: str,
    certificates: Certificates,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cert, key, ca = (str(each) for each in (*certificates.server, certificates.ca))
    words = {
        "CERT": [cert], "KEY": [key], "CA": [ca], "SPLIT": SPLIT, "TLS": ["--tls-cert", cert, "--tls-key", key],
    }  # fmt: skip
    argv = ["--store", "s", *(word for flag in flags for word in words.get(flag, [flag]))]
    if problem:
        with pytest.raises(SystemExit):
            load(kind, argv, prog="penstock")
        assert problem in capsys.readouterr().err
    else:
        load(kind, argv, prog="penstock")
