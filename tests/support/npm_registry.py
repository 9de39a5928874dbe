"""An npm registry of our own, and an npm that nobody has set up."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from training.data.emoji import npm


class Registry:
    """Answers each path with what stands for it in `answers`, one after another.

    An answer is bytes, a status, a URL to go on to, or "silence". What stands for "*"
    answers all other paths.

    Args:
        whole: How many bytes an answer is said to have.
    """

    def __init__(self, whole):
        self.answers, self.requests, self.ended = {}, [], threading.Event()
        self._whole = whole
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.requests.append((self.path, self.headers["Authorization"]))
                known = registry.answers.get(self.path) or registry.answers.get("*")
                known = known or [404]
                answer = known.pop(0) if len(known) > 1 else known[0]
                registry.answer(self, answer)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(0.02,), daemon=True
        )
        self.thread.start()

    def answer(self, request, answer):
        if answer == "silence":
            self.ended.wait(30)
            return
        if isinstance(answer, str):
            request.send_response(302)
            request.send_header("Location", answer)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        status, data = (200, answer) if isinstance(answer, bytes) else (answer, b"")
        request.send_response(status)
        length = self._whole if status == 200 else len(data)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(data)

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def unset_npm(folder, monkeypatch):
    """Take away what npm is set up for; `folder / "npmrc"` is the user's file now."""
    for name in [n for n in os.environ if n.lower().startswith("npm_config_")]:
        monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("npm_config_userconfig", str(folder / "npmrc"))
    monkeypatch.setenv("npm_config_globalconfig", str(folder / "system" / "npmrc"))
    monkeypatch.setattr(npm, "_PAUSE", 0.0)
