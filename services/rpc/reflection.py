"""grpc.reflection.v1alpha: the contracts of a port, for grpcurl and its like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from grpc_reflection.v1alpha import reflection, reflection_pb2

from services.rpc.servicer import Context


class Reflection:
    """The one method of ServerReflection, over the descriptors of the services named."""

    def __init__(self, names: Sequence[str]) -> None:
        self._answers: Any = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]

    async def server_reflection_info(self, context: Context) -> None:
        """Answer each question as it comes."""

        async def answer(data: bytes) -> None:
            question = reflection_pb2.ServerReflectionRequest.FromString(data)
            async for each in self._answers.ServerReflectionInfo(_one(question), context):
                await context.write(each.SerializeToString())

        await context.read_each(answer)


async def _one(question: Any) -> AsyncIterator[Any]:
    yield question
