"""The pages by their addresses: one module each, over `services.console.page`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.console.page import Handler
from services.console.pages import accounts, groups, later, log, messages, overview, topics

PAGES: Final[Mapping[str, Mapping[str, Handler]]] = {
    "/": {"GET": overview.show},
    "/rates.json": {"GET": overview.rates},
    "/topics": {"GET": topics.show, "POST": topics.create},
    "/topics/{topic}": {"GET": topics.show_one},
    "/topics/{topic}/update": {"POST": topics.update},
    "/topics/{topic}/delete": {"POST": topics.delete},
    "/topics/{topic}/send": {"POST": topics.send},
    "/topics/{topic}/browse": {"GET": messages.browse},
    "/topics/{topic}/follow": {"GET": messages.follow},
    "/messages": {"GET": messages.find},
    "/message": {"GET": messages.show},
    "/message/body": {"GET": messages.body},
    "/message/resend": {"POST": messages.resend},
    "/groups": {"GET": groups.show, "POST": groups.create},
    "/groups/{group}": {"GET": groups.show_one},
    "/groups/{group}/lag.json": {"GET": groups.lag},
    "/groups/{group}/reset": {"GET": groups.preview, "POST": groups.reset},
    "/groups/{group}/pause": {"POST": groups.pause},
    "/groups/{group}/resend": {"POST": groups.resend},
    "/groups/{group}/delete": {"POST": groups.delete},
    "/later": {"GET": later.show},
    "/later/recall": {"POST": later.recall},
    "/later/end": {"POST": later.end},
    "/log": {"GET": log.show},
    "/accounts": {"GET": accounts.show},
    "/accounts/users": {"POST": accounts.create_user},
    "/accounts/users/change": {"POST": accounts.change_user},
    "/accounts/policies": {"POST": accounts.put_policy},
    "/accounts/policies/delete": {"POST": accounts.delete_policy},
}
