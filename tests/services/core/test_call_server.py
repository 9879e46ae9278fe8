"""Which server takes calls, of this grpcio and of one whose private core has changed."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from structlog.testing import capture_logs

from services.rpc.aio_server import AioServer
from services.rpc.core.server import CoreServer
from services.rpc.server import call_server

choose = call_server.__wrapped__


def test_it_is_the_one_of_the_setting_and_nothing_is_said() -> None:
    with capture_logs() as said:
        assert [choose("core"), choose("aio")] == [CoreServer, AioServer]
    assert said == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ReceiveCloseOnServerOperation", None),
        ("Server", object),
        ("SendMessageOperation", lambda _message: None),
    ],
    ids=["no name", "no method", "other arguments"],
)
def test_where_the_core_has_changed_it_is_grpc_aio(
    name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delattr(cygrpc, name)
    else:
        monkeypatch.setattr(cygrpc, name, value)
    for module in [each for each in sys.modules if each.startswith("services.rpc.core")]:
        monkeypatch.delitem(sys.modules, module)
    with capture_logs() as said:
        assert choose("core") is AioServer
    assert [(each["log_level"], "grpc.aio" in each["event"]) for each in said] == [
        ("warning", True)
    ]
