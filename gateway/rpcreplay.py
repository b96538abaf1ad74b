"""Calls of the payload log that came over gRPC, asked again.

Imported only where there is an address for them.
"""

from collections.abc import Mapping

import grpc

from gateway.payloadrecord import PayloadRecord
from gateway.replay import Answer, NoAnswer

SECONDS = 120.0
"""How long one call may take."""
_UNREACHED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


class RpcClient:
    """One connection to a gateway's port for gRPC."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])

    async def ask(self, record: PayloadRecord, headers: Mapping[str, str] | None) -> Answer:
        """The call's answer now; its status is gRPC's number. Raises NoAnswer."""
        call = self._channel.unary_unary(record.path)
        metadata = [(name.lower(), value) for name, value in {**record.headers, **(headers or {})}.items()]
        try:
            body = await call(record.request.bytes(), metadata=metadata, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHED and record.status != error.code().value[0]:
                raise NoAnswer(error.details() or error.code().name) from None
            return Answer(error.code().value[0], b"", error.details() or "")
        return Answer(0, body, "")

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()
