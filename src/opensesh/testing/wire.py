"""Scripts over HTTP: a server on the loopback address with the APIs of OpenAI and Anthropic.

A :class:`~opensesh.testing.scripted.ScriptedModel` answers ``/v1/chat/completions`` and ``/v1/messages``, streaming or
not, and ``/v1/models`` lists it. It serves adapters, SDKs and other programs::

    async with WireServer("SAY hello") as server:  # in this event loop
        ...
    with WireServer() as server:  # in a thread; prompts are scripts
        subprocess.run([...], env={"BASE_URL": server.base_url})

As a program: ``python -m opensesh.testing.wire [SCRIPT] [--port N] [--record FILE]``; it prints its URL. A failure in
the script becomes an error status before the answer began, and an error event after that. ``ERROR reset`` breaks the
connection, ``ERROR malformed`` sends broken JSON, and ``ERROR torn`` ends the stream within a character.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import threading
from concurrent.futures import Future
from contextlib import aclosing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from ..errors import ModelError
from .scripted import Drip, Fail, Script, ScriptedModel
from .scripted.playback import ErrorResponse, error_response
from .wire_apis import AnthropicMessage, ChatCompletion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models.stream_events import StreamEvent

_APIS = (ChatCompletion, AnthropicMessage)
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of 0: closing resets the connection."""


_MODELS = {
    "object": "list",
    "data": [
        {
            "id": "scripted",
            "object": "model",
            "type": "model",
            "created": 0,
            "created_at": "1970-01-01T00:00:00Z",
            "owned_by": "opensesh",
            "display_name": "Scripted",
        }
    ],
    "first_id": "scripted",
    "last_id": "scripted",
    "has_more": False,
}
"""The list of models in the formats of OpenAI and Anthropic at once."""


class WireRequest:
    """A request that the server received."""

    def __init__(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.path = path
        self.headers = headers
        """Names are in lower case."""
        self.body = body
        self.title = False
        """Whether it is a title request."""
        self.dropped = False
        """Whether the client disconnected before the answer was complete."""

    @property
    def outline(self) -> dict[str, Any]:
        """The parts to compare: model, messages without system prompts, and names of the tools."""
        messages = [
            message for message in self.body.get("messages", []) if message["role"] not in ("system", "developer")
        ]
        tools = [tool.get("function", tool)["name"] for tool in self.body.get("tools") or ()]
        return {"model": self.body.get("model"), "messages": messages, "tools": tools}


WireAPI = type[ChatCompletion] | type[AnthropicMessage]


class _Disconnected(Exception):
    """The client closed the connection."""


class WireServer:
    """Serves a script or a scripted model; without one, every prompt is its own script."""

    def __init__(
        self, script: Script | str | ScriptedModel | None = None, *, port: int = 0, record: Path | None = None
    ) -> None:
        """``record`` is a file to which path and body of each request are appended as a line of JSON."""
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        self.requests: list[WireRequest] = []
        self._port = port
        self._record = record
        self._received = threading.Condition()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()
        self._thread: threading.Thread | None = None
        self._stop: Future[None] = Future()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``, for Anthropic's clients."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The URL with ``/v1``, for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def conversation(self) -> list[WireRequest]:
        """The requests that are not title requests."""
        return [request for request in self.requests if not request.title]

    def wait_for(self, count: int, timeout: float = 30.0) -> None:
        """Block until ``count`` requests that are not title requests have arrived; raises ``TimeoutError``."""
        with self._received:
            if not self._received.wait_for(lambda: len(self.conversation) >= count, timeout):
                raise TimeoutError(f"{len(self.conversation)} of {count} requests arrived within {timeout:g} s")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def __enter__(self) -> Self:
        ready: Future[None] = Future()
        self._stop = Future()

        async def serve() -> None:
            async with self:
                ready.set_result(None)
                await asyncio.wrap_future(self._stop)

        def run() -> None:
            try:
                asyncio.run(serve())
            except OSError as error:
                ready.set_exception(error)

        self._thread = threading.Thread(target=run, name="wire", daemon=True)
        self._thread.start()
        ready.result(timeout=30)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set_result(None)
        if self._thread is not None:
            self._thread.join(timeout=30)
            self._thread = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._connections.add(task)
        # A connection ends by itself, by its client, or when the server stops; none of them is an error.
        ends = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with suppress(*ends):
            await self._serve_one(reader, writer)
        writer.close()
        with suppress(*ends):
            await writer.wait_closed()
        self._connections.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
        method, target, _ = first.split(" ")
        path = target.partition("?")[0]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        reply = _Reply(writer)
        api = next((one for one in _APIS if path.endswith(one.path)), None)
        if method == "GET" and path.endswith("/models"):
            await reply.send_json(200, _MODELS)
        elif method != "POST" or api is None:
            await reply.send_json(404, {"error": {"message": f"unknown route {method} {path}"}})
        else:
            try:
                request = WireRequest(path, headers, json.loads(content))
            except ValueError as error:
                message = f"the request is not JSON: {error}"
                await reply.send_json(400, api.error_body(_invalid_request("no_json", message)))
            else:
                await self._answer_while_connected(request, api, reader, reply)

    async def _answer_while_connected(
        self, request: WireRequest, api: WireAPI, reader: asyncio.StreamReader, reply: _Reply
    ) -> None:
        """Answer, but stop when the client disconnects."""

        async def raise_when_disconnected() -> None:
            with suppress(ConnectionError):
                while await reader.read(1024):
                    pass
            raise _Disconnected

        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(raise_when_disconnected())
                await self._answer(request, api, reply)
                watch.cancel()
        except* _Disconnected:
            request.dropped = True

    async def _answer(self, request: WireRequest, api: WireAPI, reply: _Reply) -> None:
        try:
            usage = api.usage(request.body) if self.model.is_prompted else None
            call = self.model.next_call(api.read(request.body), usage)
        except (ModelError, LookupError, TypeError) as error:
            self._add_request(request)
            text = error.message if isinstance(error, ModelError) else f"the request cannot be read: {error!r}"
            await reply.send_json(400, api.error_body(_invalid_request("out_of_script", text)))
            return
        request.title = call.title
        self._add_request(request)
        answer = api(request.body, call)
        is_streamed = bool(request.body.get("stream"))
        drip = next((step.seconds for step in call.turn.steps if isinstance(step, Drip)), 0.0)
        events: list[StreamEvent] = []
        async with aclosing(self.model.play(call)) as actions:
            async for action in actions:
                if isinstance(action, Fail):
                    await self._fail(action, answer, reply)
                    return
                events.append(action)
                for frame in answer.frames(action) if is_streamed else ():
                    await reply.send(frame.encode(), drip)
        if is_streamed:
            await reply.end()
        else:
            await reply.send_json(200, answer.complete(events))

    def _add_request(self, request: WireRequest) -> None:
        with self._received:
            self.requests.append(request)
            if self._record is not None:
                line = json.dumps({"path": request.path, "body": request.body}, ensure_ascii=False)
                with self._record.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            self._received.notify_all()

    async def _fail(self, fail: Fail, answer: ChatCompletion | AnthropicMessage, reply: _Reply) -> None:
        error = error_response(fail, self.model.clock())
        if error is None and fail.kind == "reset":
            await reply.reset()
        elif error is None:
            before, letter, _ = answer.text_frame("é").encode().partition("é".encode())
            await reply.send(b'data: {"choices": [{"del\n\n' if fail.kind == "malformed" else before + letter[:1])
            await reply.end()
        elif reply.begun:
            await reply.send(answer.error_frame(error).encode())
            await reply.end()
        else:
            await reply.send_json(error.status, answer.error_body(error), error.headers)


class _Reply:
    """Writes the one response of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.begun = False

    async def send_json(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self._head(status, {"content-type": "application/json", "content-length": str(len(content)), **(headers or {})})
        self._writer.write(content)
        await self._writer.drain()

    async def send(self, data: bytes, drip: float = 0.0) -> None:
        """Send a part of a stream, in two halves if ``drip`` is set."""
        if not self.begun:
            self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        cut = len(data) // 2 if drip else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._writer.drain()
                await asyncio.sleep(drip)

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def reset(self) -> None:
        # The client must have read what was sent: a reset discards what is still in its buffer.
        await asyncio.sleep(0.05 if self.begun else 0)
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.begun = True
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Overloaded"
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join((*lines, "connection: close", "", "")).encode("latin-1"))


def _invalid_request(code: str, message: str) -> ErrorResponse:
    return ErrorResponse(400, "invalid_request_error", code, message, {})


def main(arguments: Iterable[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m opensesh.testing.wire", description="Serve a script over HTTP.")
    parser.add_argument("script", nargs="?", type=Path, help="a script file (default: every prompt is its own script)")
    parser.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    parser.add_argument("--record", type=Path, help="append each request to this file, as a line of JSON")
    options = parser.parse_args(None if arguments is None else list(arguments))
    model = ScriptedModel.prompted() if options.script is None else ScriptedModel.from_file(options.script)

    async def serve() -> None:
        async with WireServer(model, port=options.port, record=options.record) as server:
            print(server.base_url, flush=True)
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
