"""Option ``endpoint``: the same is right, and wrong, for a read and a write; and what an address can be."""

from __future__ import annotations

import pytest

from penstock.addresses import address_problem
from pipeline.errors import InvalidOption
from pipeline.sink.write_options import parse_write
from pipeline.source.options import parse_options


@pytest.mark.parametrize(
    "endpoint",
    ["localhost:5801", "127.0.0.1:1", "store_host.example:65535", "[::1]:5801",
     "[2001:db8::10.0.0.1]:5801"],
)  # fmt: skip
def test_where_a_service_can_be(endpoint: str) -> None:
    assert address_problem(endpoint) == ""


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
def test_what_is_wrong_is_reported_with_what_to_change(endpoint: str, fix: str) -> None:
    assert fix in address_problem(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("host", "'host' is not HOST:PORT of {}; add the port"),
        ("  ", "missing; give HOST:PORT of {}"),
    ],
)
def test_a_read_and_a_write_name_the_service(endpoint: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=f"'endpoint': {told.format('a reader service')}"):
        parse_options({"endpoint": endpoint})
    with pytest.raises(InvalidOption, match=f"'endpoint': {told.format('the store.s writer')}"):
        parse_write({"endpoint": endpoint, "topic": "t"}, [("value", "binary")], streaming=False)
