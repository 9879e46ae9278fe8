"""The console as an ASGI application: its pages, and who gets to them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.datastructures import FormData, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from penstock import AsyncClient, PenstockError, Unauthenticated
from services import logs
from services.config.settings import ConsoleSettings
from services.console.attempts import SignInAttempts
from services.console.page import Handler, Page, shows_problems
from services.console.pages import PAGES
from services.console.security import (
    CHANGES_NOTHING,
    HEADERS,
    host_name,
    is_from_here,
    is_own_name,
)
from services.console.sessions import COOKIE, BrowserSession, BrowserSessions, MakeClient
from services.console.templates import render
from storage.accounts.rules import checked_user_name
from storage.clock import Clock
from storage.errors import InvalidMessage

STATIC: Final = Path(__file__).parent / "static"
FORM_FIELDS_MAX: Final = 200
FORM_BYTES_MAX: Final = 8 << 20  # of somebody who may see pages
KEYS_BYTES_MAX: Final = 4 << 10  # of anybody: signing in and out
SIGN_IN: Final = "/sign-in"
WRONG_KEYS: Final = "The services know no user with these keys."


class Console:
    """Who gets to the pages, and as whom."""

    def __init__(self, settings: ConsoleSettings, make_client: MakeClient, clock: Clock) -> None:
        self.settings = settings
        self.sessions = BrowserSessions(make_client, clock)
        self.attempts = SignInAttempts(clock)
        self._make_client = make_client
        self._secure = settings.port_cert is not None

    def app(self) -> Starlette:
        """Return the application."""

        @contextlib.asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await self.sessions.close()

        routes: list[Any] = [
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
            Route(SIGN_IN, self._guarded(self._sign_in_page), methods=["GET"]),
            Route(SIGN_IN, self._guarded(self._sign_in), methods=["POST"]),
            Route("/sign-out", self._guarded(self._sign_out), methods=["POST"]),
        ]
        for path, handlers in PAGES.items():
            for method, handler in handlers.items():
                routes.append(Route(path, self._guarded(self._page(handler)), methods=[method]))
        app = Starlette(
            routes=routes,
            lifespan=lifespan,
            exception_handlers={404: _not_found, 405: _not_found, Exception: _failed},
        )
        app.add_middleware(_Headers)
        app.state.console = self
        return app

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that is asked by this console's own pages alone."""

        async def handle(request: Request) -> Response:
            name = host_name(request)
            if name is None or not (
                self.settings.accounts or is_own_name(name, self.settings.listen)
            ):
                return PlainTextResponse(
                    "Ask for this console by its address, or by localhost.", status_code=421
                )
            if request.method not in CHANGES_NOTHING and not is_from_here(request):
                return PlainTextResponse("This form is of another site.", status_code=403)
            return await answer(request)

        return handle

    def _page(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        handler = shows_problems(handler)

        async def handle(request: Request) -> Response:
            session, is_new = await self._session(request)
            if session is None:
                return self._to_sign_in(request)
            page = Page(
                request,
                session,
                self.sessions.form_token(session.id),
                self.settings.read_only,
                self.settings.accounts,
            )
            if request.method not in CHANGES_NOTHING:
                refusal = await self._take_form(page)
                if refusal is not None:
                    return refusal
            response = await handler(page)
            if (
                self.settings.accounts and page.is_unknown
            ):  # the account is disabled, or has another key
                await self.sessions.end(session)
                return self._to_sign_in(request)
            if is_new:
                self._set_cookie(response, session.id)
            return response

        return handle

    async def _take_form(self, page: Page) -> Response | None:
        """Read a form into the page; return why it is refused, None if it is not."""
        page.form = await _form(page.request)
        if not self.sessions.is_of(page.session.id, page.form):
            return page.show(
                "problem.html",
                status=403,
                title="This form is too old",
                text="It is of another session. Go back, load the page again, and send it once more.",
            )
        if page.read_only:
            return page.show(
                "problem.html",
                status=403,
                title="This console changes nothing",
                text="It was started with --read-only.",
            )
        return None

    async def _session(self, request: Request) -> tuple[BrowserSession | None, bool]:
        session_id = request.cookies.get(COOKIE, "")
        session = await self.sessions.find(session_id, touch=not _is_of_open_page(request))
        if session is not None or self.settings.accounts:
            return session, False
        return await self.sessions.open("", ""), True

    def _to_sign_in(self, request: Request) -> Response:
        if _is_of_open_page(request):
            return Response(status_code=401, headers={"HX-Redirect": SIGN_IN})
        return RedirectResponse(SIGN_IN, status_code=303)

    # Signing in and out

    async def _sign_in_page(self, request: Request) -> Response:
        if not self.settings.accounts:
            return RedirectResponse("/", status_code=303)
        return self._ask_to_sign_in(request, "")

    def _ask_to_sign_in(
        self, request: Request, problem: str, *, status: int = 200, name: str = ""
    ) -> Response:
        held = request.cookies.get(COOKIE, "") or self.sessions.new_id()
        response = render(
            "sign_in.html",
            status=status,
            problem=problem,
            name=name,
            form_token=self.sessions.form_token(held),
        )
        self._set_cookie(response, held)
        return response

    async def _sign_in(self, request: Request) -> Response:
        if not self.settings.accounts:
            return RedirectResponse("/", status_code=303)
        form = await _form(request, bytes_max=KEYS_BYTES_MAX)
        name, secret = (str(form.get(key, "")) for key in ("access_key", "secret_key"))
        if not self.sessions.is_of(request.cookies.get(COOKIE, ""), form):
            return self._ask_to_sign_in(request, "Please sign in once more.", status=403)
        address = request.client.host if request.client else ""
        if not name or not secret:
            return self._ask_to_sign_in(request, "Give both keys.", status=403, name=name[:120])
        counted = name if _is_user_name(name) else ""
        wait_s = self.attempts.take(address, counted)
        if wait_s:
            response = self._ask_to_sign_in(
                request, "Too many attempts. Try again in some minutes.", status=429
            )
            response.headers["Retry-After"] = str(int(wait_s) + 1)
            return response
        problem = await self._problem_of(name, secret) if counted else WRONG_KEYS
        if problem != WRONG_KEYS:
            self.attempts.give_back(address, counted)
        if problem:
            logs.get_logger().warning("sign-in refused", user=counted, address=address)
            return self._ask_to_sign_in(request, problem, status=403, name=name[:120])
        before = await self.sessions.find(request.cookies.get(COOKIE, ""), touch=False)
        if before is not None:
            await self.sessions.end(before)
        session = await self.sessions.open(name, secret)
        response = RedirectResponse("/", status_code=303)
        self._set_cookie(response, session.id)
        return response

    async def _problem_of(self, name: str, secret: str) -> str:
        """Return why nobody is signed in with these keys, "" if they are a user's."""
        async with self._make_client(name, secret) as user:
            try:
                await user.groups()
            except Unauthenticated:
                return WRONG_KEYS
            except PenstockError as error:
                return f"The services do not answer: {error.message}"
        async with self._make_client(f"-{secrets.token_hex(8)}", secrets.token_hex(16)) as nobody:
            try:
                await nobody.groups()
            except Unauthenticated:
                return ""
            except PenstockError as error:
                return f"The services do not answer: {error.message}"
        return "The services have no accounts: start them with --accounts, or the console without."

    async def _sign_out(self, request: Request) -> Response:
        session, _ = await self._session(request)
        form = await _form(request, bytes_max=KEYS_BYTES_MAX)
        if session is not None and self.sessions.is_of(session.id, form):
            await self.sessions.end(session)
        response = RedirectResponse(SIGN_IN, status_code=303)
        response.delete_cookie(COOKIE)
        return response

    def _set_cookie(self, response: Response, session_id: str) -> None:
        response.set_cookie(
            COOKIE, session_id, httponly=True, samesite="strict", secure=self._secure, path="/"
        )


def _is_of_open_page(request: Request) -> bool:
    """Whether a page that is open asks, and nobody for another one."""
    return request.headers.get("hx-request") == "true" or request.url.path.endswith(".json")


class _Headers:
    """Adds to each answer what browsers are told."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "max-age=300"
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def _is_user_name(name: str) -> bool:
    try:
        checked_user_name(name)
    except InvalidMessage:
        return False
    return True


async def _form(request: Request, *, bytes_max: int = FORM_BYTES_MAX) -> FormData:
    """Return the fields of a form, none of one that is too long or no form at all."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > bytes_max:
            return FormData()
    try:
        fields = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FORM_FIELDS_MAX,
        )
        return FormData([*fields])
    except ValueError:
        return FormData()


async def _not_found(_: Request, __: Exception) -> Response:
    return render(
        "bare.html", status=404, title="There is no such page", text="Go to the overview: /"
    )


async def _failed(request: Request, error: Exception) -> Response:
    logs.get_logger().error("failed", path=request.url.path, exc_info=error)
    return render(
        "bare.html", status=500, title="This is a bug of the console", text="Its log says where."
    )


def make_app(
    settings: ConsoleSettings, clock: Clock, make_client: Callable[[str, str], AsyncClient]
) -> Starlette:
    """Return the console's application; ``make_client`` takes an access key and a secret key, "" without."""
    return Console(settings, make_client, clock).app()
