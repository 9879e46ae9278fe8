"""The interceptor of every RPC where accounts are on: it knows who calls, and checks what the request names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from services.accounts.audit import AuditLog
from services.accounts.principal import PRINCIPAL, Principal
from services.accounts.rights import RIGHTS, Actions, Right, Who, named, names_at
from services.accounts.signatures import Signed, carried, signed_by, signing_secret_id
from services.limits.limiter import UserLimits
from services.rpc.calls import InterceptedCall, Proceed
from services.rpc.peers import ip_address, ip_of_peer
from services.rpc.servicer import Context
from services.rpc.status import PermissionDenied, Unauthenticated
from storage.accounts.account_table import SERVICES_USER
from storage.accounts.rules import (
    EVERYTHING,
    THE_CLUSTER,
    Action,
    Resource,
    Rules,
    User,
    UserKind,
)
from storage.errors import DamagedRecord, RecordNotFound, StoreError, UnreadableBody
from storage.log.batches import SEND_CHECK

LOOK_S: Final = 0.5  # how often the rules are compared with open calls
_CALLERS_MAX: Final = 10_000  # that are remembered with what they sent
_OPEN_BYTES_MAX: Final = (
    4 << 10
)  # of a request of who need not be a user: longer ones are not parsed for it
Verify = Callable[[Signed], Awaitable[str]]
"""Returns what names the secret that signed, "" if none did."""
_Needs = list[tuple[Resource, Actions]]


class _OpenCall(NamedTuple):
    """A call under way, and what it was allowed for."""

    caller: Principal
    needs: _Needs


class Guard:
    """Lets calls through by the accounts of a store; used on the event loop."""

    def __init__(
        self,
        rules: Callable[[], Rules],
        *,
        takes_certificates: bool,
        audit: AuditLog,
        limits: UserLimits,
        verify: Verify | None = None,
    ) -> None:
        """``rules`` returns the rules as they are now, the same object while they are the same.

        ``verify`` checks signatures where the rules have no secrets. Where it ``takes_certificates``, the
        common name of a verified client certificate is a user's name, except the name of the store's own services.
        """
        self._rules = rules
        self._takes_certificates = takes_certificates
        self._audit = audit
        self._limits = limits
        self._verify = verify or self._verified
        self._callers: dict[tuple[Any, ...], Principal] = {}
        self._open: dict[asyncio.Task[Any], _OpenCall] = {}
        self._ended: dict[asyncio.Task[Any], StoreError] = {}  # whose right has gone, and why
        self._checked: Rules | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def __call__(self, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call if its caller may. Raises Unauthenticated, PermissionDenied, LimitExceeded.

        A call that is under way when the right to it goes ends within a second.
        """
        right = RIGHTS[call.service, call.method]
        caller: Principal | None = None
        try:
            if (
                right.who is Who.ANYBODY
                and call.request_bytes <= _OPEN_BYTES_MAX
                and not await _names_anything(right, call)
            ):
                return await proceed()
            caller = await self._caller(call.context)
            user = caller.user()
            return await self._limits.within(
                user, call, partial(self._allowed, caller, user, right, call, proceed)
            )
        except (Unauthenticated, PermissionDenied) as error:
            self._audit.denied(
                user=caller.name if caller else "",
                address=ip_of_peer(call.context.peer()),
                method=f"{call.service}/{call.method}",
                problem=str(error),
            )
            raise

    async def _allowed(
        self,
        caller: Principal,
        user: User,
        right: Right,
        call: InterceptedCall,
        proceed: Proceed,
        context: Context | None = None,
        /,
    ) -> Any:
        needs = await _needs(caller, user, right, call)
        try:
            answer = await self._run(caller, needs, right, proceed, context)
        except (RecordNotFound, DamagedRecord, UnreadableBody):
            _check_answered(caller, right, [names.resource(EVERYTHING) for names in right.answered])
            raise
        return _answered(caller, right, call, answer)

    async def _caller(self, context: Context) -> Principal:
        """Return who calls, by its signature or else its certificate. Raises Unauthenticated."""
        authorization = carried(context.invocation_metadata())
        host = ip_of_peer(context.peer())
        name = "" if authorization[0] else self._certificate_name(context)
        place = authorization, name, host
        caller = self._callers.get(place)
        if caller is None:
            caller = await self._known(authorization, name, host)
            if len(self._callers) >= _CALLERS_MAX:
                self._callers.clear()
            self._callers[place] = caller
        return caller

    async def _known(self, authorization: tuple[str, str], name: str, host: str) -> Principal:
        try:
            signed = signed_by(*authorization)
        except ValueError:
            raise Unauthenticated from None
        secret_id = None
        if signed is not None:
            name, secret_id = signed.access_key, await self._verify(signed)
        if not name or secret_id == "":
            raise Unauthenticated
        return Principal(self._rules, name, ip_address(host), secret_id)

    async def _verified(self, signed: Signed) -> str:
        return signing_secret_id(self._rules(), signed)

    def _certificate_name(self, context: Context) -> str:
        name = (context.peer_identity() if self._takes_certificates else None) or ""
        return "" if name == SERVICES_USER else name

    async def _run(
        self,
        caller: Principal,
        needs: _Needs,
        right: Right,
        proceed: Proceed,
        context: Context | None,
    ) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = _OpenCall(caller, needs)
        if self._looking is None:
            self._look_later()
        called_by = PRINCIPAL.set(caller)
        sending = SEND_CHECK.set(_send_check(caller)) if right.sends else None
        try:
            return await proceed(context)
        except asyncio.CancelledError:
            ended = self._ended.pop(task, None)
            if ended is None:
                raise
            task.uncancel()
            raise ended from None
        finally:
            if sending is not None:
                SEND_CHECK.reset(sending)
            PRINCIPAL.reset(called_by)
            self._open.pop(task, None)
            self._ended.pop(task, None)

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """End the open calls whose right has gone with a change of the rules."""
        self._looking = None
        if not self._open:
            return
        self._look_later()
        rules = self._rules()
        if rules is self._checked:
            return
        self._checked = rules
        for task, (caller, needs) in list(self._open.items()):
            try:
                self._limits.meter(caller.user())
                for resource, actions in needs:
                    caller.check(resource, *actions)
            except (Unauthenticated, PermissionDenied) as error:
                self._ended[task] = error
                task.cancel()


def _send_check(caller: Principal) -> Callable[[set[str]], None]:
    def check(topics: set[str]) -> None:
        caller.user()
        for topic in topics:
            caller.check(Resource.topic(topic), Action.PUB)

    return check


async def _names_anything(right: Right, call: InterceptedCall) -> bool:
    if not right.names:
        return False
    request = await call.request()
    return request is not None and any(True for names in right.names for _ in named(request, names))


async def _needs(caller: Principal, user: User, right: Right, call: InterceptedCall) -> _Needs:
    """Check what a method and its request need; return it. Raises PermissionDenied, Unauthenticated."""
    if right.who is Who.SUPER_USERS and user.kind is not UserKind.SUPER:
        raise PermissionDenied(caller.name, "be a super user")
    if right.who is Who.SERVICES and user.kind is not UserKind.SERVICE:
        raise PermissionDenied(caller.name, "be a service of the store")
    needs: _Needs = [(THE_CLUSTER, (right.cluster,))] if right.cluster else []
    if right.names and not user.may_everything:
        request = await call.request()
        assert request is not None  # methods with a stream of requests have no such names
        needs += [
            (resource, names.actions) for names in right.names for resource in named(request, names)
        ]
    for resource, actions in needs:
        caller.check(resource, *actions)
    return needs


def _check_answered(caller: Principal, right: Right, resources: list[Resource]) -> None:
    """Check what an answer names; the denial says no more than one of what is not there."""
    actions = [action for names in right.answered for action in names.actions]
    if not all(any(caller.allows(action, each) for action in actions) for each in resources):
        raise PermissionDenied(caller.name, f"{actions[0]} on the topic of what it asks for")


def _answered(caller: Principal, right: Right, call: InterceptedCall, answer: Any) -> Any:
    """Return what of an answer the caller may see. Raises PermissionDenied if that is nothing."""
    if not (right.answered or right.shown) or caller.user().may_everything:
        return answer
    message: Message = answer if isinstance(answer, Message) else call.answer_of(answer)
    _check_answered(
        caller, right, [each for names in right.answered for each in named(message, names)]
    )
    for shown in right.shown:
        elements: Any = getattr(message, shown.field)
        kept = [
            element
            for element in elements
            if all(
                any(caller.allows(action, shown.resource(name)) for action in shown.actions)
                for name in (names_at(element, shown.path) if shown.path else (element,))
            )
        ]
        del elements[:]
        elements.extend(kept)
    return message
