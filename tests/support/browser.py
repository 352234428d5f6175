"""What the browser tests share: a server for the built files, and watched pages."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from browser_build.problems import for_page

from practice.problems import Problem, load

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

REPO = Path(__file__).resolve().parents[2]
FREE_LIST = load(REPO / "tests" / "support" / "problems" / "free-list")


class Server:
    """Serves built files, and what a test lays over them; keeps what was asked for."""

    def __init__(self, folder: Path) -> None:
        # path ("/page.html") -> content; None: there is no such file
        self.overlay: dict[str, str | bytes | None] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            extensions_map = {
                **http.server.SimpleHTTPRequestHandler.extensions_map,
                ".mjs": "text/javascript",
                ".wasm": "application/wasm",
            }

            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(folder))

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                outer.asked.append(path)
                if path not in outer.overlay:
                    return super().do_GET()
                content = outer.overlay[path]
                if content is None:
                    return self.send_error(404)
                content = content.encode() if isinstance(content, str) else content
                self.send_response(200)
                self.send_header("Content-Type", self.guess_type(path))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def copyfile(self, source: Any, outputfile: Any) -> None:
                with suppress(ConnectionError):  # the page was closed meanwhile
                    super().copyfile(source, outputfile)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def watched_page(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A new page; at its end, no script of it has failed and nothing else was asked."""
    errors: list[str] = []
    asked = urls_asked(context)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{server.url}/empty.html")
    page.evaluate("localStorage.clear()")
    yield page
    page.close()
    assert errors == []
    assert [url for url in asked if not url.startswith((server.url, "blob:"))] == []


def urls_asked(context: BrowserContext) -> list[str]:
    """Every URL that pages and workers of a context ask for, as it goes on."""
    urls: list[str] = []
    context.on("request", lambda request: urls.append(request.url))
    return urls


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem as the pages get it, with plain lists."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in for_page(problem).items()
    }
