"""The table of pending halves says who is due without a look at all of them, and keeps nothing of those that ended."""

from __future__ import annotations

from storage.transactions.halves import Half, HalfTable


def half(name: str, number: int, due_ms: int, *, key: str = "") -> Half:
    return Half(name, key or name, "orders", 0, number, number * 300, 250, 5, due_ms, 0, 7)


def test_a_row_that_is_used_again_is_due_at_its_own_time() -> None:
    table = HalfTable()
    table.add(half("A", 0, 10))
    table.remove("A")
    table.add(half("B", 1, 20))
    assert table.due(10, 10) == []
    assert table.due(20, 10) == ["B"]
    table.remove("B")
    assert table.next_due_ms() is None
    assert len(table) == 0


def test_many_that_are_added_at_once_are_as_if_added_one_by_one() -> None:
    """More than there are rows, in transactions of several, to rows that were used before."""
    halves = [
        half(f"T{number % 1_500}", number, 7_919 * number % 5_000, key=f"K{number}")
        for number in range(4_000)
    ]
    one_by_one, at_once = HalfTable(), HalfTable()
    for table in (one_by_one, at_once):
        for number in range(100):
            table.add(half(f"old{number}", number, 1))
        for number in range(0, 100, 2):
            table.remove(f"old{number}")
    for each in halves:
        one_by_one.add(each)
    at_once.add_all(halves)
    at_once.add_all([])
    assert len(at_once) == len(one_by_one) == 4_050
    assert at_once.ids() == one_by_one.ids()
    assert all(at_once.of(name) == one_by_one.of(name) for name in one_by_one.ids())
    for now_ms in (0, 1, 2_500, 5_000):
        assert at_once.due(now_ms, 10_000) == one_by_one.due(now_ms, 10_000)
    assert at_once.next_due_ms() == one_by_one.next_due_ms() == 0
