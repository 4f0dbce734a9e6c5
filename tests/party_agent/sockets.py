"""The fake coordinator on a real socket."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import httpx

from tests.party_agent.fake_coordinator import FakeCoordinator


@contextmanager
def on_a_socket(coordinator: FakeCoordinator) -> Iterator[str]:
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            request = httpx.Request(self.command, f"http://h{self.path}", headers=dict(self.headers), content=body)
            if self.path.startswith("/v1/events"):
                time.sleep(0.05)  # a long poll, so that agents do not spin
            with lock:
                response = coordinator.handle(request)
            with suppress(BrokenPipeError):  # whoever asked has been stopped meanwhile
                self.send_response(response.status_code)
                self.send_header("Content-Type", response.headers["Content-Type"])
                self.send_header("Content-Length", str(len(response.content)))
                self.end_headers()
                self.wfile.write(response.content)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - what http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
