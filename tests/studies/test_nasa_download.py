"""Downloads, from a server on this machine that can break off, refuse ranges and change its file."""

import http.server
import json
import re
import threading

import numpy as np
import pytest
from support.nasa_files import archives_in_an_archive, operation, write_set5
from twinfold_studies.nasa import fetch
from twinfold_studies.nasa.download import download
from typer.testing import CliRunner

from twinfold.cli import app

BYTES = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def nested(tmp_path) -> bytes:
    operations = [operation(), operation("charge"), operation()]
    return archives_in_an_archive(write_set5(tmp_path / "made" / "B0005.mat", operations).read_bytes())


class Server:
    """A server of one file that can break off, refuse ranges, answer with errors and change its file."""

    def __init__(self):
        self.content, self.tag, self.ranges = BYTES, '"one"', True
        self.break_after: list[int] = []  # bytes after which the next answers break off
        self.errors: list[int] = []  # codes of the next answers
        self.asked: list[str | None] = []  # the Range of every request

        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, format, *args):
                del format, args

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/some%20set.zip"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, handler):
        asked = handler.headers.get("Range")
        self.asked.append(asked)
        if self.errors:
            handler.send_error(self.errors.pop(0))
            return
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if begin >= len(self.content):
            handler.send_error(416)
            return
        body = self.content[begin:]
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Length", str(len(body)))
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        handler.send_header("ETag", self.tag)
        handler.end_headers()
        handler.wfile.write(body[: self.break_after.pop(0)] if self.break_after else body)
        handler.close_connection = True

    def stop(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server():
    started = Server()
    yield started
    started.stop()


def get(server, path, **options):
    received = []
    finished = download(server.url, path, progress=lambda got, size: received.append((got, size)), wait=0.0, **options)
    assert received[-1] == (len(server.content), len(server.content))
    assert finished.path.read_bytes() == server.content
    assert finished.size == len(server.content)
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]  # nothing unfinished is left
    return finished


def test_a_download_in_one_go(server, tmp_path):
    assert get(server, tmp_path / "new" / "set.zip").tag == '"one"'
    assert server.asked == [None]


def test_a_broken_download_goes_on_where_it_was(server, tmp_path):
    server.break_after = [100_000, 50_000]
    get(server, tmp_path / "set.zip")
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_goes_on_too(server, tmp_path):
    server.break_after, server.errors = [100_000], []
    path = tmp_path / "set.zip"

    def interrupt(got, size):
        del size
        if got >= 60_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.url, path, progress=interrupt)
    have = (tmp_path / "set.zip.part").stat().st_size
    assert 60_000 <= have < 300_000
    assert not path.exists()
    get(server, path)
    assert server.asked == [None, f"bytes={have}-"]


def test_a_server_that_ignores_ranges_sends_it_all_again(server, tmp_path):
    server.break_after, server.ranges = [100_000], False
    get(server, tmp_path / "set.zip")
    assert server.asked == [None, "bytes=100000-"]


def test_another_version_on_the_server_is_not_mixed_in(server, tmp_path):
    server.break_after = [100_000]
    with pytest.raises(KeyboardInterrupt):
        download(server.url, tmp_path / "set.zip", progress=interrupt_at(100_000))
    server.content, server.tag = BYTES[::-1], '"two"'
    assert get(server, tmp_path / "set.zip").tag == '"two"'
    assert server.asked == [None, "bytes=100000-", None]


def test_a_shorter_version_on_the_server(server, tmp_path):
    server.break_after = [100_000]
    with pytest.raises(KeyboardInterrupt):
        download(server.url, tmp_path / "set.zip", progress=interrupt_at(100_000))
    server.content, server.tag = BYTES[:1000], '"three"'
    get(server, tmp_path / "set.zip")  # 416, then from the beginning


def interrupt_at(size):
    def progress(got, total):
        del total
        if got >= size:
            raise KeyboardInterrupt

    return progress


def test_errors_that_pass_are_waited_for_and_others_named(server, tmp_path):
    server.errors = [503, 429]
    get(server, tmp_path / "set.zip")
    server.errors = [404]
    with pytest.raises(OSError, match=r"some%20set\.zip: the server returned 404 Not Found"):
        download(server.url, tmp_path / "other.zip", wait=0.0)
    server.errors = [500] * 9
    with pytest.raises(OSError, match=r"500 Internal Server Error.*the same command resumes"):
        download(server.url, tmp_path / "other.zip", wait=0.0, retries=2)
    assert len(server.errors) == 6


def test_a_connection_that_never_comes(server, tmp_path):
    server.break_after = [0] * 9
    with pytest.raises(OSError, match="the connection ended after 0 of 300000 bytes"):
        download(server.url, tmp_path / "set.zip", wait=0.0, retries=1)
    with pytest.raises(OSError, match="no connection"):
        download("http://127.0.0.1:1/set.zip", tmp_path / "set.zip", wait=0.0, retries=0)


def test_fetch_from_an_address(server, tmp_path, nested):
    server.content, server.break_after = nested, [len(nested) // 2]
    with pytest.raises(KeyboardInterrupt):
        fetch(server.url, tmp_path / "out", progress=interrupt_at(len(nested) // 2))
    first = fetch(server.url, tmp_path / "out")
    assert server.asked == [None, f"bytes={len(nested) // 2}-"]
    assert first.written == ("5. Battery Data Set/1. BatteryAgingARC/B0005.mat",)
    assert not list((tmp_path / "out" / "download").iterdir())
    again = fetch(server.url, tmp_path / "out")
    assert (again.written, again.unchanged, len(server.asked)) == ((), first.written, 2)  # nothing was asked
    assert fetch(server.url, tmp_path / "out", force=True).unchanged == first.written
    assert len(server.asked) == 3
    (tmp_path / "out" / first.written[0]).unlink()
    assert fetch(server.url, tmp_path / "out").written == first.written
    source = json.loads((tmp_path / "out" / "manifest.json").read_text())["sources"][server.url]
    assert (source["bytes"], source["tag"]) == (len(nested), '"one"')


def call(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", "nasa-battery", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_the_command_fetches_and_shows(server, tmp_path, nested, monkeypatch):
    monkeypatch.setenv("TWINFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TWINFOLD_DATA", raising=False)
    code, output = call()
    assert code == 2
    assert "twinfold data nasa-battery --from PATH|URL" in output
    server.content = nested
    code, output = call("--from", server.url)
    assert code == 0, output
    assert "1 files written, 0 unchanged" in output
    assert re.search(r"B0005 +cycle +2 +2 +2\.0 +24 +1\.800 +1\.800", output)
    assert "1 cells, 2 discharges, 2 without a flag" in output
    code, output = call("--from", server.url, "--verify")
    assert "0 files written, 1 unchanged" in output
    code, output = call("--cells", "B0006")
    assert (code, "there is no cell 'B0006'" in output) == (2, True)
