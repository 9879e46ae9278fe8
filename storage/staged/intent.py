"""The decision of a commit: from here on it will be completed, whatever happens.

It is a state of the writer's journal until the ledger has the version (``storage.staged.ledger``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.journal.states import StateJournal, States

PREFIX: Final = "intent/"  # of names of states


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The decision: which attempts, in which order; all their records lie after ``log_offset``."""

    app_id: str
    version: int
    one_off: bool
    attempts: tuple[str, ...]
    log_offset: int


def intent_name(app_id: str, version: int) -> str:
    """Return the name of a state."""
    return f"{PREFIX}{version}/{app_id}"


def save_intent(states: StateJournal, intent: Intent) -> None:
    """Write the decision; durable on return. Raises StoreFull, OSError."""
    states.put_document(intent_name(intent.app_id, intent.version), asdict(intent))


def needed_offset(states: StateJournal) -> int | None:
    """Return from which commit offset on the records of decided commits are looked for; None without any."""
    return min((intent.log_offset for intent in load_intents(states)), default=None)


def load_intents(states: States) -> list[Intent]:
    """Return all decisions that are not completed."""
    documents = [states.document(name) for name in states.names(PREFIX)]
    return [Intent(**{**each, "attempts": tuple(each["attempts"])}) for each in documents]
