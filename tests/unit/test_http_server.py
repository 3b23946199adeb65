"""The operator's HTTP server, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from structlog.testing import capture_logs

from tests.support.http import connected, request
from worker.errors import FatalError
from worker.http import Answering, Check, Page, serve_http
from worker.settings import HttpSettings
from worker.telemetry import Telemetry

SETTINGS = HttpSettings(enabled=True, port=0)


class Checks:
    """What the server is told to tell."""

    def __init__(self) -> None:
        self.alive = [Check("poll_loop", holds=True, told="turned 0.1 s ago")]
        self.ready = [Check("database", holds=True, told="reached 1 s ago")]

    def answering(self, registry: CollectorRegistry | None = None) -> Answering:
        return Answering(alive=lambda: self.alive, ready=lambda: self.ready, registry=registry or Telemetry().registry)


@asynccontextmanager
async def served(checks: Checks | None = None, settings: HttpSettings = SETTINGS) -> AsyncIterator[int]:
    async with serve_http(settings, (checks or Checks()).answering()) as port:
        yield port


async def ending(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the connection without a word."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_checks_that_hold_are_200_and_say_how_it_is() -> None:
    async with served() as port:
        alive, ready = await request(port, "/livez"), await request(port, "/readyz")
    assert (alive.status, ready.status) == (200, 200)
    assert alive.json() == {"status": "ok", "checks": {"poll_loop": {"ok": True, "told": "turned 0.1 s ago"}}}
    assert ready.json()["checks"] == {"database": {"ok": True, "told": "reached 1 s ago"}}


async def test_a_check_that_fails_is_503_names_itself_and_is_logged_once_per_failure() -> None:
    checks = Checks()
    async with served(checks) as port:
        with capture_logs() as logs:
            checks.ready = [Check("database", holds=False, told="no answer")]
            failed = [await request(port, "/readyz") for _ in range(3)]
            checks.ready = [Check("database", holds=True, told="reached")]
            assert (await request(port, "/readyz")).status == 200
            checks.ready = [Check("database", holds=False, told="no answer")]
            await request(port, "/readyz")
        assert (await request(port, "/livez")).status == 200, "one page's check is not another's"
    assert {page.status for page in failed} == {503}
    assert failed[0].json() == {"status": "failed", "checks": {"database": {"ok": False, "told": "no answer"}}}
    assert [line["event"] for line in logs] == ["check.failed", "check.failed"]


async def test_metrics_are_prometheus_text_and_openmetrics_where_asked_for() -> None:
    async with served() as port:
        plain = await request(port, "/metrics")
        asked = await request(port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "attribution_records" in {family.name for family in parse_text(plain.text)}
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert "attribution_records" in {family.name for family in parse_openmetrics(asked.text)}  # type: ignore[no-untyped-call]  # the library's


async def test_head_gives_what_get_would_without_its_body() -> None:
    async with served() as port:
        got, head = await request(port, "/readyz"), await request(port, "/readyz", method="HEAD")
    assert (head.status, head.text, head.headers) == (200, "", got.headers)
    assert int(head.headers["content-length"]) == len(got.text)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
async def test_nothing_can_be_changed_over_http(method: str) -> None:
    async with served() as port:
        answer = await request(port, "/metrics", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_other_paths_are_404_and_a_query_is_ignored() -> None:
    async with served() as port:
        assert [(await request(port, path)).status for path in ("/", "/metrics/x", "/livez?verbose=1")] == [
            404,
            404,
            200,
        ]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),  # no host
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 5_000, 431),
    ],
    ids=["tls", "no-host", "long-target", "many-headers"],
)
async def test_what_is_no_request_or_too_large_is_refused(sent: bytes, status: int) -> None:
    async with served() as port:
        async with connected(port) as (reader, writer):
            writer.write(sent)
            answered = await reader.readline()
        assert (await request(port, "/livez")).status == 200, "and the next one is served"
    assert int(answered.split()[1]) == status


async def test_a_request_that_never_ends_is_cut_off_at_its_deadline() -> None:
    impatient = HttpSettings(port=0, request_timeout_s=0.05)
    async with served(settings=impatient) as port, connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nhost:")
        assert await ending(reader)


async def test_one_connection_serves_one_request() -> None:
    async with served() as port, connected(port) as (reader, writer):
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
        whole = await reader.read()
    assert whole.count(b"HTTP/1.1 200 OK") == 1
    assert b"connection: close" in whole


async def test_connections_beyond_the_limit_are_turned_away_and_room_comes_back() -> None:
    async with served(settings=HttpSettings(port=0, connections_max=2)) as port:
        async with connected(port) as first, connected(port) as second:
            async with connected(port) as (turned_away, _):
                assert await ending(turned_away)
            for reader, writer in (first, second):
                writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"200 OK" in await reader.read()
        assert (await request(port, "/livez")).status == 200


async def test_a_bug_in_a_page_is_500_and_ends_nothing() -> None:
    def broken(_path: str, _accept: str) -> Page:
        raise ZeroDivisionError

    async with serve_http(SETTINGS, broken) as port:
        with capture_logs() as logs:
            answers = [await request(port, "/metrics") for _ in range(2)]
    assert [answer.status for answer in answers] == [HTTPStatus.INTERNAL_SERVER_ERROR] * 2
    assert [line["event"] for line in logs] == ["http.failed", "http.failed"]


async def test_a_taken_port_is_told_with_the_settings_that_change_it() -> None:
    async with served() as port:
        with pytest.raises(FatalError, match=rf"port {port} .*ATTRIBUTION_HTTP__PORT"):
            async with served(settings=HttpSettings(port=port)):
                raise AssertionError("two servers at one port")


async def test_a_server_that_ends_closes_what_is_open() -> None:
    async with AsyncExitStack() as server:
        patient = HttpSettings(port=0, request_timeout_s=600)
        port = await server.enter_async_context(served(settings=patient))
        async with connected(port) as (reader, writer):
            writer.write(b"GET /livez")
            assert (await request(port, "/livez")).status == 200, "the other is open by now"
            await server.aclose()
            async with asyncio.timeout(10):
                assert await ending(reader)
    with pytest.raises(ConnectionRefusedError):
        await request(port, "/livez")


def test_only_this_machine_is_served_unless_configured() -> None:
    assert (HttpSettings().host, HttpSettings().enabled) == ("127.0.0.1", False)
