"""The answer to a query by key, page after page; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.calls import records
from penstock.calls.call import Call
from penstock.calls.records import KeyPage
from penstock.consuming.damaged import Item, OnDamaged, damage_error
from penstock.errors import IndexDamaged
from penstock.record import Record
from penstock.values import UncoveredRange

OnUncovered = Callable[[UncoveredRange], None]
"""Called with each range of which records may be missing."""


class KeyQuery:
    """Every page of a query by key as one sequence of records, the newest first."""

    def __init__(
        self,
        topic: str,
        key: str,
        *,
        unique: bool,
        begin_ms: int,
        end_ms: int | None,
        page_size: int,
        on_damaged: OnDamaged | None,
        on_uncovered: OnUncovered | None,
    ) -> None:
        self._topic = topic
        self._key = key
        self._unique = unique
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._page_size = page_size
        self._on_damaged = on_damaged
        self._on_uncovered = on_uncovered
        self._page_token: str | None = ""
        self._items: deque[Item] = deque()
        self.indexed_offset = 0

    def next_call(self) -> Call[KeyPage] | None:
        """Return the call for the next page, None after the last page."""
        if self._page_token is None:
            return None
        return records.by_key(
            self._topic,
            self._key,
            unique=self._unique,
            begin_ms=self._begin_ms,
            end_ms=self._end_ms,
            page_size=self._page_size,
            page_token=self._page_token,
        )

    def on_page(self, page: KeyPage) -> None:
        """Take a page in; records that only share the key's hash are left out."""
        newest_first = reversed(list(page.records))  # as the pages themselves are
        items: deque[Item] = deque(record for record in newest_first if self._matches(record))
        for damage in page.damaged:
            if self._on_damaged is not None:
                self._on_damaged(self._topic, -1, damage)
            else:
                items.append(damage_error(damage, topic=self._topic))
        for uncovered in page.uncovered:
            if self._on_uncovered is not None:
                self._on_uncovered(uncovered)
            else:
                items.append(IndexDamaged(uncovered))
        token = page.next_page_token or None
        # An interrupt (Ctrl-C) comes after a call, and there is none from here on: the page is taken whole or asked for again.
        self._items, self._page_token, self.indexed_offset = items, token, page.indexed_offset

    def _matches(self, record: Record) -> bool:
        if self._unique:
            return record.unique_key == self._key
        return self._key in record.keys

    def next_record(self) -> Record | None:
        """Return the next record that is here, None if none is; raises DataLoss once a damage."""
        if not self._items:
            return None
        item = self._items[0]
        is_record = isinstance(item, Record)
        del self._items[0]  # after the last call: an interrupt finds it here, or with the caller
        if is_record:
            return item  # type: ignore[return-value]
        raise item  # type: ignore[misc]
