"""/metrics at the door of a running store: what it says is what was done."""

from __future__ import annotations

import re
from pathlib import Path

from used_store import MetricsPage

ROOT = Path(__file__).resolve().parents[3]


def test_messages_are_counted_where_they_were_stored(metrics_page: MetricsPage) -> None:
    came = {
        topic: metrics_page.value("rocketmq_messages_in_total", topic=topic)
        for topic in ("orders", "parcels")
    }
    # 5 alone, 20 in a batch, 1 of two topics, 1 of a transaction; 1 of two topics, 10 over a stream
    assert came == {"orders": 27, "parcels": 11}
    assert (
        metrics_page.value("rocketmq_messages_in_total", topic="parcels", message_type="fifo") == 11
    )
    assert metrics_page.value("rocketmq_throughput_in_total", topic="orders") > 27 * 90
    assert (
        metrics_page.value("rocketmq_send_to_dlq_messages_total", consumer_group="impatient") == 1
    )
    assert metrics_page.value("rocketmq_timing_messages") == 1
    assert metrics_page.value("rocketmq_half_messages", topic="orders") == 1
    assert metrics_page.value("rocketmq_commit_messages_total", topic="orders") == 1
    assert metrics_page.value("rocketmq_rollback_messages_total", topic="orders") == 1


def test_what_goes_out_and_what_is_left_is_counted_by_group(metrics_page: MetricsPage) -> None:
    assert (
        metrics_page.value("rocketmq_messages_out_total", topic="orders", consumer_group="packing")
        >= 2
    )
    assert (
        metrics_page.value("rocketmq_messages_out_total", topic="orders", consumer_group="") >= 27
    )
    assert (
        metrics_page.value(
            "rocketmq_consumer_lag_messages", topic="orders", consumer_group="billing"
        )
        == 0
    )
    assert (
        metrics_page.value(
            "rocketmq_consumer_lag_messages", topic="orders", consumer_group="packing"
        )
        == 25
    )
    assert (
        0
        < metrics_page.value("rocketmq_consumer_lag_latency", consumer_group="packing")
        < 3_600_000
    )
    assert metrics_page.value("rocketmq_consumer_group_number") >= 3


def test_the_log_is_where_its_numbers_say(metrics_page: MetricsPage) -> None:
    stored = sum(
        sample.value
        for sample in metrics_page.families["rocketmq_throughput_in"].samples
        if sample.name == "rocketmq_throughput_in_total"
    )
    assert metrics_page.value("penstock_log_offset_bytes", position="appended") == stored
    assert metrics_page.value("penstock_log_behind_bytes", position="dispatched") == 0
    assert metrics_page.value("penstock_index_offset_bytes", position="indexed") == stored
    assert metrics_page.value("penstock_append_seconds_count") > 8
    for name in ("flush", "dispatch", "sync"):
        assert metrics_page.value(f"penstock_{name}_seconds_count") > 0, name
    assert (
        metrics_page.value("penstock_writable") == metrics_page.value("penstock_writer_alive") == 1
    )


def test_calls_are_counted_by_method_and_status(metrics_page: MetricsPage) -> None:
    produce = {"rpc_service": "penstock.v1.Writer", "method": "Produce"}
    assert metrics_page.value("penstock_rpc_seconds_count", code="OK", **produce) == 7
    assert metrics_page.value("penstock_rpc_seconds_count", code="NOT_FOUND", **produce) == 1
    assert (
        metrics_page.value("rocketmq_rpc_latency_count", request_code="produce", result="success")
        == 7
    )
    assert metrics_page.value("penstock_refusals_total", reason="TOPIC_NOT_FOUND") == 1
    assert metrics_page.value("penstock_rpc_seconds_count", method="ProduceBatch", code="OK") >= 2


def test_every_sample_says_of_which_service_it_is(metrics_page: MetricsPage) -> None:
    services = {
        sample.labels.get("service")
        for family in metrics_page.families.values()
        for sample in family.samples
    }
    assert services == {"writer", "reader", "indexer", "serve"}
    for service in services - {"serve"}:
        assert metrics_page.value("penstock_up", service=service) == 1
        assert metrics_page.value("penstock_restarts_total", service=service) == 0
        assert metrics_page.value("process_resident_memory_bytes", service=service) > 1 << 20
        assert metrics_page.value("penstock_event_loop_delay_seconds_count", service=service) > 0
    assert (
        metrics_page.value(
            "rocketmq_topic_number",
            cluster="DefaultCluster",
            node_type="broker",
            node_id="penstock",
        )
        >= 2
    )
    assert "penstock_metrics_failures_total{" not in metrics_page.text


def test_operations_names_every_family_and_no_other(metrics_page: MetricsPage) -> None:
    """docs/operations.md, Metrics: a row for each, with its labels and the services that have it."""
    page = (ROOT / "docs" / "operations.md").read_text().split("## Metrics\n", 1)[1]
    table = page.split("\n## ", 1)[0]
    named = set(re.findall(r"`((?:penstock|rocketmq)_\w+)`", table.split("|---|", 1)[1]))
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in metrics_page.families.values()
        if family.name.startswith(("penstock_", "rocketmq_"))
    }
    assert named == shown
