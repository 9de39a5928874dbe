"""Check, receive, log and answer a call of gRPC."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from ...web.access import TokenAccess
from ...web.log import request_id
from ...web.observer import Observed, RequestObserver
from ...web.status import StatusCode, StatusError
from .gate import CallGate
from .message import Arrivals

_CODES = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """A method of a service.

    Attributes:
        name: Its name in the protocol.
        call: Its name in the log, such as "predict".
        request: Class of the message that it takes.
        answer: Makes the reply of the request, the call, and what takes note of it.
        gate: Bounds its calls.
        arrivals: Bounds their messages.
        longest: Of their messages in bytes; None for what `arrivals` says.
    """

    name: str
    call: str
    request: Any
    answer: Callable[[Any, grpc.ServicerContext, Observed], Any]
    gate: CallGate
    arrivals: Arrivals
    longest: int | None


@dataclass(frozen=True)
class CallRules:
    """The rules for all calls.

    Attributes:
        access: Checks the bearer token; None lets everybody in.
        observer: Logs and counts the calls.
    """

    access: TokenAccess | None
    observer: RequestObserver


def method_handler(service: str, method: Method, rules: CallRules) -> Any:
    """Make the handler of a method, for a `grpc.Server`.

    Token and gate are checked as soon as the headers are there: a client that is not
    let in cannot make the server wait for a message, or hold one in memory.

    Args:
        service: Full name of its service.
        method: The method.
        rules: What holds for all.
    """
    path = f"/{service}/{method.name}"

    def take(
        messages: Iterator[bytes],
        call: grpc.ServicerContext,
        metadata: dict[str, Any],
        inside: contextlib.ExitStack,
    ) -> tuple[Any, int | None, StatusError | None]:
        try:
            if rules.access is not None:
                rules.access.check(metadata.get("authorization"))
            inside.enter_context(method.gate.enter())
            message = method.arrivals.receive(
                messages, call, method.request, path, method.longest
            )
            return *inside.enter_context(message), None
        except StatusError as error:
            return None, None, error

    def answer(messages: Iterator[bytes], call: grpc.ServicerContext) -> Any:
        metadata = dict(call.invocation_metadata())
        id_ = request_id(metadata.get("x-request-id"))
        call.set_trailing_metadata((("x-request-id", id_),))
        with contextlib.ExitStack() as inside:
            request, length, refusal = take(messages, call, metadata, inside)
            # The time until the message arrives is the client's, and not counted.
            with rules.observer.observe("GRPC", id_, call.peer(), metadata) as observed:
                observed.call, observed.request_bytes = method.call, length
                if refusal is None:
                    try:
                        return method.answer(request, call, observed)
                    except StatusError as error:
                        # With its frames, this one among them, it would be a circle
                        # that keeps the messages in memory.
                        refusal = error.with_traceback(None)
                        if error.code.is_failure:
                            _log.error("%s: %s", error.code.name, error.message)
                    except Exception as error:
                        _log.exception("A call failed.")
                        refusal = StatusError(
                            StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
                        )
                    finally:
                        if observed.fingerprint is not None:
                            named = ("x-model-fingerprint", observed.fingerprint)
                            call.set_trailing_metadata((("x-request-id", id_), named))
                observed.status = refusal.code
        _abort(call, refusal)

    return grpc.stream_unary_rpc_method_handler(
        answer, response_serializer=lambda reply: reply.SerializeToString()
    )


def _abort(call: grpc.ServicerContext, error: StatusError) -> None:
    call.abort(_CODES[error.code], error.message)
