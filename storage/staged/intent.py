"""The decision of a commit: from here on it will be completed, whatever happens.

It is a state of the writer's journal until the ledger has the version (``storage.staged.ledger``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from storage.journal.states import ReadStates, StateJournal

PREFIX: Final = "intent/"  # of names of states


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The decision: which attempts, in which order; all their records lie after ``log_offset``."""

    app_id: str
    version: int
    one_off: bool
    attempts: tuple[str, ...]
    log_offset: int

    def to_document(self) -> dict[str, object]:
        """Return the document's fields."""
        return {
            "appId": self.app_id,
            "version": self.version,
            "oneOff": self.one_off,
            "attempts": self.attempts,
            "logOffset": self.log_offset,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Intent:
        """Read the document's fields."""
        return cls(
            app_id=document["appId"],
            version=document["version"],
            one_off=document["oneOff"],
            attempts=tuple(document["attempts"]),
            log_offset=document["logOffset"],
        )


def intent_name(app_id: str, version: int) -> str:
    """Return the name of a state."""
    return f"{PREFIX}{version}/{app_id}"


def save_intent(states: StateJournal, intent: Intent) -> None:
    """Write the decision; durable on return. Raises StoreFull, OSError."""
    states.put_document(intent_name(intent.app_id, intent.version), intent.to_document())


def needed_offset(states: StateJournal) -> int | None:
    """Return from which commit offset on the records of decided commits are looked for; None without any."""
    return min((intent.log_offset for intent in load_intents(states)), default=None)


def load_intents(states: StateJournal | ReadStates) -> list[Intent]:
    """Return all decisions that are not completed."""
    return [Intent.from_document(states.document(name)) for name in states.names(PREFIX)]
