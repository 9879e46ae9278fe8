"""grpc.reflection.v1alpha: the contracts of a port, for grpcurl and its like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from grpc_reflection.v1alpha import reflection, reflection_pb2

from services.rpc.servicer import EOF, Context


class Reflection:
    """The one method of ServerReflection, over the descriptors of the services named."""

    def __init__(self, names: Sequence[str]) -> None:
        self._answers: Any = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]

    async def server_reflection_info(self, context: Context) -> None:
        """Answer each question as it comes."""
        async for answer in self._answers.ServerReflectionInfo(_questions(context), context):
            await context.write(answer.SerializeToString())


async def _questions(
    context: Context,
) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    while (data := await context.read()) is not EOF:
        yield reflection_pb2.ServerReflectionRequest.FromString(data)
