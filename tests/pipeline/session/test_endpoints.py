"""Option ``endpoint``: the same is right, and wrong, for a read and a write."""

from __future__ import annotations

from collections.abc import Callable
from re import escape

import pytest

from pipeline.errors import InvalidOption
from pipeline.sink.write_options import parse_write
from pipeline.source.options import parse_options


def of_read(endpoint: str) -> str | None:
    return parse_options({"endpoint": endpoint}).endpoint


def of_write(endpoint: str) -> str | None:
    given = {"endpoint": endpoint, "topic": "t"}
    return parse_write(given, [("value", "binary")], streaming=False).endpoint


BOTH = pytest.mark.parametrize(
    ("parse", "service"), [(of_read, "a reader service"), (of_write, "the store's writer")]
)


@BOTH
@pytest.mark.parametrize(
    "endpoint",
    ["localhost:5801", "127.0.0.1:1", "store_host.example:65535", "[::1]:5801",
     "[2001:db8::10.0.0.1]:5801", " padded:5801 "],
)  # fmt: skip
def test_where_a_service_can_be(
    parse: Callable[[str], str | None], service: str, endpoint: str
) -> None:
    assert parse(endpoint) == endpoint.strip()


@BOTH
@pytest.mark.parametrize(
    ("endpoint", "fix"),
    [
        ("localhost", "add the port"),
        ("[::1]", "add the port"),
        ("localhost:", "the port is a number from 1 to 65535"),
        ("localhost:0", "the port is a number from 1 to 65535"),
        ("localhost:65536", "the port is a number from 1 to 65535"),
        ("localhost:http", "the port is a number from 1 to 65535"),
        ("localhost:٣", "the port is a number from 1 to 65535"),
        ("[::1]:+1", "the port is a number from 1 to 65535"),
        ("two words:5801", "take the blank out"),
        ("host: 5801", "take the blank out"),
        ("http://host:5801", "without a scheme or path"),
        ("host:5801/", "without a scheme or path"),
        ("::1:5801", "in brackets, like [::1]:5801"),
        ("2001:db8::1", "in brackets, like [::1]:5801"),
        ("[host]:5801", "in brackets stands an IPv6 address"),
        ("[127.0.0.1]:5801", "in brackets stands an IPv6 address"),
        ("[::1:5801", "an IPv6 address in brackets"),
        (":5801", "the host is a name"),
        ("a:b:5801", "the host is a name"),
    ],
)
def test_what_is_wrong_is_reported_with_what_to_change(
    parse: Callable[[str], str | None], service: str, endpoint: str, fix: str
) -> None:
    told = f"option 'endpoint': {endpoint!r} is not HOST:PORT of {service}; "
    with pytest.raises(InvalidOption, match=f"^{escape(told)}.*{escape(fix)}"):
        parse(endpoint)


@BOTH
@pytest.mark.parametrize("endpoint", ["", "  "])
def test_an_endpoint_of_nothing_is_missing(
    parse: Callable[[str], str | None], service: str, endpoint: str
) -> None:
    with pytest.raises(InvalidOption, match=f"'endpoint': missing; give HOST:PORT of {service}"):
        parse(endpoint)
