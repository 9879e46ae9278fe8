"""Changes of topics that ``topics.json`` does not have yet: states of the writer's journal, one a topic.

Each names the counter that the table's version has with it. A table whose counter is as high has the change, or
a broker's change since, and counts. Deletions are never among them: they write the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.journal.states import States

PREFIX: Final = "topic/"


def state_of(name: str, counter: int, fields: Mapping[str, object]) -> tuple[str, object]:
    """Return the name and the document of the state of a change; ``fields`` are the topic in a broker's shape."""
    return PREFIX + name, {"counter": counter, "topic": fields}


def changes_in(states: States, counter: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield name, counter and fields of each change that a table with ``counter`` does not have."""
    for state in states.names(PREFIX):
        change = states.document(state)
        if change["counter"] > counter:
            yield state.removeprefix(PREFIX), change["counter"], change["topic"]
