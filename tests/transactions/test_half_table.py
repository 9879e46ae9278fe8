"""The table of pending halves says who is due without a look at all of them, and keeps nothing of those that ended."""

from __future__ import annotations

from storage.transactions.halves import Half, HalfTable


def half(name: str, number: int, due_ms: int, *, key: str = "") -> Half:
    return Half(name, key or name, "orders", 0, number, number * 300, 250, 5, due_ms, 0, 7)


def test_what_ended_is_due_no_more() -> None:
    table = HalfTable()
    table.add(half("A", 0, 10))
    table.remove("A")
    table.add(half("B", 1, 20))
    assert table.due(10, 10) == []
    assert table.due(20, 10) == ["B"]
    table.remove("B")
    assert table.due(99, 10) == []
    assert len(table) == 0
