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
_Place = tuple[str, str, str, str]  # authorization, its date, certificate's name, host


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
        self._callers: dict[_Place, Principal] = {}
        self._open: dict[asyncio.Task[Any], _OpenCall] = {}
        self._ended: dict[asyncio.Task[Any], StoreError] = {}  # whose right has gone, and why
        self._checked: Rules | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def __call__(self, call: InterceptedCall, proceed: Proceed) -> Any:
        """Make a call if its caller may. Raises Unauthenticated, PermissionDenied, LimitExceeded.

        A call that is under way when the right to it goes ends within a second. One that sends records has been
        checked where they are stored.
        """
        method = call.method
        right = RIGHTS[method.service, method.name]
        caller: Principal | None = None
        try:
            if right.who is Who.ANYBODY and await _names_nothing(right, call):
                return await proceed(call)
            place = self._place(call.context)
            caller = self._callers.get(place) or await self._meet(place)
            let = partial(self._let, caller, right, proceed)
            return await self._limits.within(caller.user(), call, let)
        except (Unauthenticated, PermissionDenied) as error:
            self._audit.denied(
                user=caller.name if caller else "",
                address=ip_of_peer(call.context.peer()),
                method=f"{method.service}/{method.name}",
                problem=str(error),
            )
            raise

    async def _let(
        self, caller: Principal, right: Right, proceed: Proceed, call: InterceptedCall
    ) -> Any:
        """Make a call that its caller has a right to.

        An answer that is denied is raised: the limits do not count it, for they would tell its size.
        """
        needs = await _needs(caller, caller.user(), right, call) if right.has_needs else []
        PRINCIPAL.set(caller)  # in the context of the call's own task
        if right.sends:
            SEND_CHECK.set(caller.check_sends)
        try:
            made = proceed(call)
            is_stored_soon = right.sends and not call.method.is_stream
            answer = await (made if is_stored_soon else self._watched(caller, needs, made))
        except (RecordNotFound, DamagedRecord, UnreadableBody):
            _check_answered(caller, right, [each.resource(EVERYTHING) for each in right.answered])
            raise
        return _answered(caller, right, call, answer) if right.answered or right.shown else answer

    def _place(self, context: Context) -> _Place:
        """Return what a caller is known by: its signature or else its certificate, and its host."""
        authorization, date = carried(context.invocation_metadata())
        name = "" if authorization else self._certificate_name(context)
        return authorization, date, name, ip_of_peer(context.peer())

    async def _meet(self, place: _Place) -> Principal:
        """Return who calls, and remember it. Raises Unauthenticated."""
        authorization, date, name, host = place
        try:
            signed = signed_by(authorization, date)
        except ValueError:
            raise Unauthenticated from None
        secret_id = None
        if signed is not None:
            name, secret_id = signed.access_key, await self._verify(signed)
        if not name or secret_id == "":
            raise Unauthenticated
        if len(self._callers) >= _CALLERS_MAX:
            self._callers.clear()
        self._callers[place] = caller = Principal(self._rules, name, ip_address(host), secret_id)
        return caller

    async def _verified(self, signed: Signed) -> str:
        return signing_secret_id(self._rules(), signed)

    def _certificate_name(self, context: Context) -> str:
        name = (context.peer_identity() if self._takes_certificates else None) or ""
        return "" if name == SERVICES_USER else name

    async def _watched(self, caller: Principal, needs: _Needs, made: Awaitable[Any]) -> Any:
        """Wait for a call; it ends with the right to it."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = _OpenCall(caller, needs)
        if self._looking is None:
            self._look_later()
        try:
            return await made
        except asyncio.CancelledError:
            ended = self._ended.pop(task, None)
            if ended is None:
                raise
            task.uncancel()
            raise ended from None
        finally:
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


async def _names_nothing(right: Right, call: InterceptedCall) -> bool:
    if call.request_bytes > _OPEN_BYTES_MAX:
        return False
    request = await call.request() if right.names else None
    return request is None or not any(named(request, names) for names in right.names)


async def _needs(caller: Principal, user: User, right: Right, call: InterceptedCall) -> _Needs:
    """Check what a method and its request need; return it. Raises PermissionDenied, Unauthenticated."""
    if right.who is Who.SUPER_USERS and user.kind is not UserKind.SUPER:
        raise PermissionDenied(caller.name, "be a super user")
    if right.who is Who.SERVICES and user.kind is not UserKind.SERVICE:
        raise PermissionDenied(caller.name, "be a service of the store")
    needs: _Needs = [(THE_CLUSTER, (right.cluster,))] if right.cluster else []
    if right.names and not right.sends and not user.may_everything:
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
    if caller.user().may_everything:
        return answer
    message: Message = answer if isinstance(answer, Message) else call.method.parse_answer(answer)
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
