"""The accounts of a store on another machine: rules without secrets, and signatures that the reader verifies."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from google.protobuf.message import DecodeError

from penstock.v1 import accounts_pb2 as pb
from services import logs
from services.accounts.guard import LOOK_S
from services.accounts.signatures import Signed
from services.upstream import Upstream
from storage.accounts.document import decode_rules
from storage.accounts.rules import NO_RULES, Rules
from storage.errors import BrokenAccounts, StoreClosed

GET_RULES: Final = "/penstock.v1.Authentication/GetRules"
VERIFY_SIGNATURE: Final = "/penstock.v1.Authentication/VerifySignature"


class RemoteAccounts:
    """Follows the rules of a reader; used on the event loop.

    A change is in force here within a second. While the reader is away the rules before it stay.
    """

    def __init__(self, reader: Upstream) -> None:
        self._reader = reader
        self._rules = NO_RULES
        self._has_problem = False
        self._following = asyncio.ensure_future(self._follow())

    def rules(self) -> Rules:
        """Return the rules as they were at the last look."""
        return self._rules

    async def verify(self, signed: Signed) -> str:
        """Return what names the secret that signed, "" if none did. Raises StoreClosed if nobody can say."""
        if not self._rules.generation:
            await self._look()
        try:
            answer = await self._reader.call(
                VERIFY_SIGNATURE,
                pb.VerifySignatureRequest(
                    access_key=signed.access_key, date=signed.date, signature=signed.signature
                ),
            )
        except grpc.aio.AioRpcError as error:
            raise StoreClosed(f"nobody can verify signatures now: {error.details()}") from error
        return pb.VerifySignatureResponse.FromString(answer).secret_id

    async def close(self) -> None:
        """Follow no more."""
        self._following.cancel()
        await self._reader.close()

    async def _follow(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        request = pb.GetRulesRequest(generation=self._rules.generation)
        try:
            snapshot = pb.RulesSnapshot.FromString(await self._reader.call(GET_RULES, request))
            if snapshot.document:
                self._rules = decode_rules(snapshot.document)
        except (grpc.aio.AioRpcError, DecodeError, BrokenAccounts) as error:
            if not self._has_problem:
                details = error.details() if isinstance(error, grpc.RpcError) else str(error)
                logs.get_logger().error("no rules from the reader", problem=details)
            self._has_problem = True
            return
        self._has_problem = False
