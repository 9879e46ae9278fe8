"""Sends go on when the writer was away, as on a restart; the gateway stays."""

from __future__ import annotations

import threading
from pathlib import Path

from fake_leases import FakeLeases
from gateway_bed import GatewayBed
from service_settings import gateway_settings, writer_settings

from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer


def send(bed: GatewayBed, number: int) -> v2.Status:
    system = v2.SystemProperties(message_id=f"01{number}", message_type=v2.NORMAL)
    message = v2.Message(topic=v2.Resource(name="orders"), body=b"x", system_properties=system)
    answer = bed.call("SendMessage", service_pb2.SendMessageRequest(messages=[message]))
    assert isinstance(answer, service_pb2.SendMessageResponse)
    return answer.status


def test_sends_go_on_after_the_writer_was_away(tmp_path: Path) -> None:
    """Those that come meanwhile wait for it."""
    store = tmp_path / "store"
    before = BackgroundService(serve_writer, writer_settings(store))
    address = before.__enter__().address
    settings = gateway_settings(writer_address=address, reader_address="127.0.0.1:1")
    with BackgroundService(serve_gateway, settings) as gateway:
        bed = GatewayBed(gateway, before, FakeLeases())
        bed.create("orders", 1)
        assert send(bed, 1).code == v2.OK
        before.__exit__()
        answers: list[v2.Status] = []
        meanwhile = threading.Thread(target=lambda: answers.append(send(bed, 2)))
        meanwhile.start()
        with BackgroundService(serve_writer, writer_settings(store, listen=address)):
            meanwhile.join(60)
            after = [send(bed, number).code for number in (3, 4)]
        bed.channel.close()

    assert [answer.code for answer in answers] == [v2.OK]
    assert after == [v2.OK, v2.OK]
