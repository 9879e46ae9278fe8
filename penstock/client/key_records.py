"""Iterators over the answer to a query by key, page after page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.calls.call import Call
from penstock.calls.records import KeyPage
from penstock.client.connection import ConnectionCore
from penstock.consuming.damaged import Item, OnDamaged, OnUncovered, damage_error
from penstock.errors import IndexDamaged
from penstock.forms import AsyncIterating, Iterating
from penstock.record import Record


class KeyRecordsCore:
    """Every page of a query by key as one sequence of records, the newest first, in both forms."""

    def __init__(
        self,
        client: ConnectionCore,
        page: Callable[..., Call[KeyPage]],
        topic: str,
        key: str,
        unique: bool,
        on_damaged: OnDamaged | None,
        on_uncovered: OnUncovered | None,
    ) -> None:
        self._client = client
        self._page = page
        self._topic = topic
        self._key = key
        self._unique = unique
        self._on_damaged = on_damaged
        self._on_uncovered = on_uncovered
        self._page_token: str | None = ""
        self._items: deque[Item] = deque()
        self._indexed_offset = 0

    @property
    def indexed_offset(self) -> int:
        """The commit offset from which on records were not indexed when the last page was made."""
        return self._indexed_offset

    async def _next_item(self) -> Record:
        while not self._items:
            if self._page_token is None:
                raise StopAsyncIteration
            call = self._page(page_token=self._page_token)
            self._take(await self._client._send(call, lane="iterators"))
        item = self._items[0]
        is_record = isinstance(item, Record)
        del self._items[0]  # after the last call: an interrupt finds it here, or with the caller
        if is_record:
            return item  # type: ignore[return-value]
        raise item  # type: ignore[misc]

    def _take(self, page: KeyPage) -> None:
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
        self._items, self._page_token, self._indexed_offset = items, token, page.indexed_offset

    def _matches(self, record: Record) -> bool:
        if self._unique:
            return record.unique_key == self._key
        return self._key in record.keys


class KeyRecords(KeyRecordsCore, Iterating[Record]):
    """Records that carry a key, fetched page by page; made by `Client.query_by_key`."""


class AsyncKeyRecords(KeyRecordsCore, AsyncIterating[Record]):
    """As `KeyRecords`, for one task."""
