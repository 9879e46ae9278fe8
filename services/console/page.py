"""One request of a browser: who asks, what for, and the answer."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock import (
    AsyncClient,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PenstockError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)
from services.console.answers import AWAY, Answers, LastAnswer
from services.console.sessions import BrowserSession
from services.console.templates import render

T = TypeVar("T")
ROWS: Final = 50  # of a table's page
PATIENCE_S: Final = 0.15  # with details of a list: the page has them when it asks anew
NUMBER_DIGITS_MAX: Final = 18


class BadInput(Exception):
    """What a browser sent is not what the page takes; the text says what it takes."""


PROBLEMS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], int, str], ...]] = (
    ((BadInput, InvalidArgument), 400, "That is not understood"),
    (Unauthenticated, 401, "The services ask who calls"),
    (PermissionDenied, 403, "You may not do this"),
    (NotFound, 404, "There is no such thing"),
    (FailedPrecondition, 409, "The service refuses this"),
    (ResourceExhausted, 429, "The service is busy or full"),
    (AWAY, 503, "A service does not answer"),
    (Exception, 500, "This did not work"),
)


@dataclass(frozen=True, slots=True)
class Sheet(Generic[T]):
    """Some rows of many: sheet ``number`` of ``count``, from 1 on."""

    rows: Sequence[T]
    number: int
    count: int
    row_count: int


@dataclass(slots=True)
class Page:
    """A request, with what all pages need to answer it."""

    request: Request
    session: BrowserSession
    form_token: str
    read_only: bool
    accounts: bool
    form: FormData = field(default_factory=FormData)
    asked: list[LastAnswer[Any]] = field(default_factory=list)
    problem: Exception | None = None

    @property
    def client(self) -> AsyncClient:
        """The client, which calls as the user."""
        return self.session.caller.client

    @property
    def answers(self) -> Answers:
        """What services said to this user last."""
        return self.session.caller.answers

    @property
    def is_live(self) -> bool:
        """Whether a page that is open asks for itself anew."""
        return self.request.headers.get("hx-request") == "true"

    async def ask(
        self,
        service: str,
        key: object,
        ask: Callable[[], Awaitable[T]],
        *,
        fresh_s: float = 1.5,
        patience_s: float | None = None,
    ) -> LastAnswer[T]:
        """Ask a service what another page may have asked just now; the page says which are away."""
        answer = await self.answers.get(service, key, ask, fresh_s=fresh_s, patience_s=patience_s)
        self.asked.append(answer)
        return answer

    def away(self) -> list[LastAnswer[Any]]:
        """Return one answer of each service that is away, the oldest value's."""
        found: dict[str, LastAnswer[Any]] = {}
        for answer in self.asked:
            if not answer.is_away:
                continue
            known = found.get(answer.service)
            if known is None or answer.answered_ms < known.answered_ms:
                found[answer.service] = answer
        return list(found.values())

    def refusals(self) -> list[str]:
        """Return why services refused what was asked, each reason once."""
        return sorted(
            {answer.error.message for answer in self.asked if answer.error and not answer.is_away}
        )

    @property
    def is_unknown(self) -> bool:
        """Whether a service does not know the user, or not any more."""
        errors = (self.problem, *(answer.error for answer in self.asked))
        return any(isinstance(error, Unauthenticated) for error in errors)

    @property
    def address(self) -> str:
        """The address of this page, as a link has it."""
        path, query = quote(self.request.scope["path"], safe="/"), self.request.url.query
        return f"{path}?{query}" if query else path

    def path(self, name: str) -> str:
        """Return a part of the address."""
        return str(self.request.path_params[name])

    def given(self, name: str, default: str = "") -> str:
        """Return what the address or the form says of a name."""
        value = self.form.get(name, self.request.query_params.get(name, default))
        return value.strip() if isinstance(value, str) else default

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number. Raises BadInput for what is none, and without one where there is no default."""
        text = self.given(name)
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdecimal()) or len(text) > NUMBER_DIGITS_MAX:
            raise BadInput(f"{name.replace('_', ' ')}: give a whole number, not {text[:40]!r}")
        if int(text) < least:
            raise BadInput(f"{name.replace('_', ' ')}: give {least} or more")
        return int(text)

    def optional_number(self, name: str) -> int | None:
        """Return a whole number, None where the field is empty. Raises BadInput."""
        return self.number(name) if self.given(name) else None

    def parsed(self, parse: Callable[..., T], text: str) -> T:
        """Return a time or a place that was typed, in the browser's zone if it says one that is known. Raises BadInput."""
        zone = None
        with contextlib.suppress(ValueError, OSError, KeyError):
            zone = ZoneInfo(self.given("zone")) if self.given("zone") else None
        try:
            return parse(text, zone=zone)
        except ValueError as error:
            raise BadInput(str(error)) from None

    def sheet(self, rows: Sequence[T], *, rows_max: int = ROWS, name: str = "page") -> Sheet[T]:
        """Return the rows of the table's page that the address names; the last one where it names none there is."""
        count = max(1, math.ceil(len(rows) / rows_max))
        number = min(max(1, self.number(name, 1)), count)
        begin = (number - 1) * rows_max
        return Sheet(rows[begin : begin + rows_max], number, count, len(rows))

    def with_query(self, **changes: object) -> str:
        """Return the address of this page with other parameters."""
        return str(self.request.url.include_query_params(**changes).query)

    def show(self, template: str, *, status: int = 200, **context: Any) -> Response:
        """Return a page."""
        notices, self.session.notices = self.session.notices, []
        if self.is_live and notices:
            self.session.notices = notices  # for the page that is looked at
            notices = []
        return render(
            template,
            status=status,
            page=self,
            notices=notices,
            away=self.away(),
            **context,
        )

    def done(self, notice: str, address: str) -> Response:
        """Return to a page after something was changed, and say what was."""
        self.answers.forget()
        self.session.notices.append(notice)
        return RedirectResponse(address, status_code=303)


Handler = Callable[[Page], Awaitable[Response]]


def problem_page(page: Page, error: Exception) -> Response:
    """Return the page for a question that failed."""
    text = error.message if isinstance(error, PenstockError) else str(error)
    status, title = next(each[1:] for each in PROBLEMS if isinstance(error, each[0]))
    if isinstance(error, Unauthenticated) and not page.accounts:
        text = f"{text}. The services have accounts: start the console with --accounts."
    return page.show("problem.html", status=status, title=title, text=text)


def shows_problems(handler: Handler) -> Handler:
    """Make a page of what a handler raises about its calls and input."""

    @functools.wraps(handler)
    async def handle(page: Page) -> Response:
        try:
            return await handler(page)
        except (PenstockError, BadInput) as error:
            page.problem = error
            return problem_page(page, error)

    return handle
