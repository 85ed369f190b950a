"""The addresses of the server: pages, the API below /api/, and the WebSocket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from echelon.engines.decoding import decode
from echelon.errors import Denied, EchelonError, InvalidJob, Refused, UnknownRun, Unreachable
from echelon.handle import Run
from echelon.notebook.picture import drawing_of
from echelon.ui import live
from echelon.ui.reading import Reading, error_data
from echelon.ui.results import list_results, open_result
from echelon.ui.safety import SESSION, Guard, Keys
from echelon.ui.spool import LineQuery

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
_STATUS = {UnknownRun: 404, InvalidJob: 400, Denied: 502, Refused: 502, Unreachable: 502}
_LONGEST_BODY = 4096  # bytes
_BODY_PATIENCE = 5.0  # seconds
_CHUNK = 1 << 18


def make_app(reading: Reading, keys: Keys) -> Guard:
    """The application, with its guard before it."""
    pages = read_static()

    def page(request: Request) -> Response:
        name = request.path_params.get("path", "index.html")
        if name not in pages:  # only these: no path leads anywhere
            raise HTTPException(404)
        media, content = pages[name]
        return Response(content, media_type=media, headers={"cache-control": "no-cache"})

    async def session(request: Request) -> Response:
        given = decode(await _body(request), dict[str, str])
        if not keys.is_token(given.get("token", "")):
            return _data({"error": "the token is not this server's", "hint": "open the address again"}, 403)
        answer = Response(status_code=204)
        answer.set_cookie(keys.cookie_name, keys.cookie, httponly=True, samesite="strict", path="/")
        return answer

    async def socket(websocket: WebSocket) -> None:
        await live.serve(websocket, reading)

    def results(request: Request) -> Response:
        return _data(list_results(reading.results_of(_name(request))))

    def result(request: Request) -> Response:
        path = request.path_params["path"]
        file, size = open_result(reading.results_of(_name(request)), path)
        name = quote(path.rpartition("/")[2], safe="")
        return StreamingResponse(
            _chunks(file, size),
            media_type="application/octet-stream",
            headers={
                "content-length": str(size),
                "content-disposition": f"attachment; filename*=UTF-8''{name}",
                "content-security-policy": "default-src 'none'; sandbox",
            },
        )

    def drawing(request: Request) -> Response:
        steps, links = reading.drawn(_name(request))
        if not steps:
            raise HTTPException(404)
        return Response(drawing_of(steps, links), media_type="image/svg+xml")

    def logs(request: Request) -> Response:
        wanted = LineQuery(_number(request, "rank"), _search(request))
        after, before = _number(request, "after"), _number(request, "before")
        return _data(reading.logs(_name(request), wanted, after, before))

    def changed(do: Callable[[Run], object]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if reading.read_only:
                return _data({"error": "this page only looks", "hint": "start it without --read-only"}, 403)
            await _body(request)

            def work() -> object:
                try:
                    return do(reading.attach(reading.row(_name(request))))
                finally:
                    reading.rows.forget()

            return _data({"note": await run_in_threadpool(work)})

        return answer

    read: dict[str, Callable[[Request], object]] = {
        "/api/about": lambda _request: reading.about(),
        "/api/runs": lambda _request: reading.runs(),
        "/api/compare": lambda request: reading.compare(request.query_params.getlist("run")),
        "/api/cluster": lambda _request: reading.cluster(),
        "/api/runs/{name}": lambda request: reading.run(_name(request)),
        "/api/runs/{name}/events": lambda request: reading.events(_name(request)),
        "/api/runs/{name}/slow": lambda request: reading.slow(_name(request)),
        "/api/runs/{name}/metrics": lambda request: reading.metrics(
            _name(request), _number(request, "rank"), _search(request), _number(request, "most")
        ),
    }
    routes = [
        Route("/", page),
        Route("/static/{path:path}", page),
        Route("/favicon.ico", lambda _request: Response(status_code=204)),
        Route(SESSION, session, methods=["POST"]),
        *(Route(path, _reads(what)) for path, what in read.items()),
        Route("/api/runs/{name}/graph", drawing),
        Route("/api/runs/{name}/logs", logs),
        Route("/api/runs/{name}/results", results),
        Route("/api/runs/{name}/results/{path:path}", result),
        Route("/api/runs/{name}/stop", changed(_stop), methods=["POST"]),
        Route("/api/runs/{name}/remove", changed(_remove), methods=["POST"]),
        WebSocketRoute("/api/live", socket),
    ]
    handlers: dict[Any, Any] = {
        EchelonError: _refused,
        msgspec.DecodeError: lambda _request, _error: _data({"error": "no JSON", "hint": ""}, 400),
        TimeoutError: lambda _request, _error: _data({"error": "too slow", "hint": ""}, 408),
        HTTPException: lambda _request, error: _data({"error": error.detail, "hint": ""}, error.status_code),
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), keys)


def read_static() -> dict[str, tuple[str, bytes]]:
    """All files that pages consist of, by path, with their types."""
    return {
        path.relative_to(_STATIC).as_posix(): (_TYPES[path.suffix], path.read_bytes())
        for path in sorted(_STATIC.rglob("*"))
        if path.suffix in _TYPES
    }


def _stop(run: Run) -> str | None:
    """As `echelon stop` does: the end is waited for, and results come home, behind the answer."""
    note = run.stop(wait=False)

    def wait() -> None:
        with suppress(EchelonError):  # the page shows how it stands
            run.wait(run.stop_patience(), show=False)

    threading.Thread(target=wait, name=f"stopping {run.name}", daemon=True).start()
    return note


def _remove(run: Run) -> str | None:
    notes: list[str] = []
    kept = run.remove(notes.append)
    notes += [f"results are kept on {each}" for each in kept]
    return "; ".join(notes) or None


def _reads(what: Callable[[Request], object]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return _data(what(request))

    return answer


def _data(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EchelonError)
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
    return _data(error_data(error), status)


def _name(request: Request) -> str:
    name = request.path_params["name"]
    assert isinstance(name, str)
    return name


def _search(request: Request) -> str:
    return request.query_params.get("search", "")[:200]


def _number(request: Request, field: str) -> int | None:
    text = request.query_params.get(field, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise InvalidJob(field, text[:40], "is not a number", hint="from 0 on")
    return int(text)


async def _body(request: Request) -> bytes:
    """A small body that comes soon."""
    found = bytearray()
    with anyio.fail_after(_BODY_PATIENCE):
        async for piece in request.stream():
            found += piece
            if len(found) > _LONGEST_BODY:
                raise HTTPException(413)
    return bytes(found)


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """So many bytes of a file, also if it grows meanwhile."""
    with file:
        while size > 0 and (piece := file.read(min(size, _CHUNK))):
            size -= len(piece)
            yield piece
