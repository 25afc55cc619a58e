"""Around every handler: metrics, trace context, and the one place where exceptions become answers."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from regionquota.errors import InvalidRequest, StaleVersion, Unavailable
from regionquota.http import problems
from regionquota.http.openapi import document
from regionquota.http.problems import Answer
from regionquota.http.routes import Route
from regionquota.telemetry import Telemetry, span

_log = structlog.get_logger(__name__)
BODY_WITHIN_S: Final = 10.0
"""A body that takes longer is refused, so that slow senders cannot collect sockets."""
_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"

Probe: TypeAlias = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
"""Whether the server is ready, and what it found."""
_Handle: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    routes: Sequence[Route],
    telemetry: Telemetry,
    ready: Probe,
    *,
    title: str,
    max_body_bytes: int,
    on_stop: Callable[[], None] = lambda: None,
) -> web.Application:
    """An app with `routes`, probes, metrics and the OpenAPI document of both.

    `on_stop` is called before the end waits for the calls under way.
    """
    app = web.Application(client_max_size=max_body_bytes, middlewares=[_refusals])
    for route in routes:
        app.router.add_route(route.method, _pattern(route.path), _handle(route, telemetry, max_body_bytes))
    logging.getLogger("aiohttp.server").addFilter(_only_our_errors)
    described = msgspec.json.encode(document(routes, title))

    async def stop(_app: web.Application) -> None:
        on_stop()

    app.on_shutdown.append(stop)

    async def healthz(_request: web.Request) -> web.Response:
        return _respond(Answer(200, {"status": "alive"}))

    async def readyz(_request: web.Request) -> web.Response:
        is_ready, found = await ready()
        return _respond(Answer(200 if is_ready else 503, {"status": "ready" if is_ready else "not ready", **found}))

    async def metrics(_request: web.Request) -> web.Response:
        body, content_type = telemetry.render_metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=described, content_type=_JSON)

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/openapi.json", openapi)
    return app


def _pattern(path: str) -> str:
    """Without a pattern of its own a part would match no braces, which identifiers may hold."""
    return re.sub(r"{(\w+)}", r"{\1:[^/]+}", path)


def _handle(route: Route, telemetry: Telemetry, max_body_bytes: int) -> _Handle:
    answered = telemetry.calls.answered

    async def handle(request: web.Request) -> web.Response:
        began = time.perf_counter()
        with span(route.operation, request.headers):
            answer = await _answer(route, request, max_body_bytes)
        answered(route.operation, str(answer.body.get("reason", answer.status)), time.perf_counter() - began)
        return _respond(answer)

    return handle


async def _answer(route: Route, request: web.Request, max_body_bytes: int) -> Answer:
    try:
        if route.body is not None and not await _has_body(request):
            return problems.too_slow(BODY_WITHIN_S)
        return await route.handler(request)
    except InvalidRequest as error:
        return problems.invalid(error)
    except StaleVersion as error:
        return problems.stale(error)
    except Unavailable as error:
        return problems.unavailable(error)
    except web.HTTPRequestEntityTooLarge:
        return problems.too_large(max_body_bytes)
    except web.RequestPayloadError:
        return problems.invalid(InvalidRequest("body", "the body is not what its encoding headers say"))
    except ConnectionResetError:  # of the caller, in the middle of a body: only the metrics hear of it
        return problems.invalid(InvalidRequest("body", "the connection broke before the end of the body"))
    except Exception:  # noqa: BLE001 - a caller gets an answer, the traceback goes to the log
        _log.exception("a call failed", operation=route.operation)
        detail = "the server could not carry this out; repeat it with the same id to learn what became of it"
        return problems.problem(500, "internal", "Internal error", detail)


async def _has_body(request: web.Request) -> bool:
    """Reads the body in time; the request keeps it, so that a handler's own read does not wait."""
    if request.content.is_eof():
        return True
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            await request.read()
    except TimeoutError:
        return False
    return True


class _OnlyOurErrors(logging.Filter):
    """What is no HTTP is the sender's mistake: aiohttp answers 400, and would log a traceback for each."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


_only_our_errors: Final = _OnlyOurErrors()


@web.middleware
async def _refusals(request: web.Request, handler: _Handle) -> web.StreamResponse:
    """What aiohttp refuses by itself (no such path, wrong method) is a problem document as well."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        answer = problems.problem(
            error.status, "http", error.reason, f"{request.method} {request.path}: {error.reason.lower()}"
        )
        allowed = error.headers.get("Allow")
        return _respond(Answer(answer.status, answer.body, {"Allow": allowed} if allowed else {}))


def _respond(answer: Answer) -> web.Response:
    if answer.status == 304:
        return web.Response(status=304, headers=answer.headers)
    kind = _PROBLEM if answer.status >= 400 and "type" in answer.body else _JSON
    return web.Response(
        status=answer.status,
        body=msgspec.json.encode(answer.body),
        headers={"Content-Type": kind, **answer.headers},
    )
