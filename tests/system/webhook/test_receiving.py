"""What a webhook takes, from whom, and what it answers."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import ConfigError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.partitioner import partition_for
from streambench.system.systems import Systems
from streambench.system.webhook.body import BadBodyError, messages_of
from streambench.system.webhook.settings import WebhookSettings
from tests.system.webhook.listening import STREAM, Listener, Posts, configured

LINES = {"content-type": "application/x-ndjson"}


def signed(secret: str, body: bytes, stamp: str | None = None) -> str:
    what = body if stamp is None else stamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), what, hashlib.sha256).hexdigest()


class TestAnswers:
    def test_a_request_is_answered_only_when_its_message_is_acknowledged(self) -> None:
        with Listener() as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b'{"n":1}')
            (received,) = listener.wait_for(1)
            assert (received.message, received.key, received.offset) == (b'{"n":1}', None, "0")
            assert not posts.answers
            listener.acknowledging.set()
            (answer,) = posts.join()
            assert (answer.status_code, answer.json()) == (200, {"messages": 1})

    def test_an_acknowledgement_covers_what_came_before_it_and_nothing_behind(self) -> None:
        with Listener() as listener:
            listener.acknowledging.clear()
            posts = []
            for number in range(4):
                posts.append(listener.posting(b"%d" % number))
                listener.wait_for(number + 1)
            listener.consumer.acknowledge({listener.ssps[0]: "1"})
            assert [each.join()[0].status_code for each in posts[:2]] == [200, 200]
            assert not posts[2].answers and not posts[3].answers
            listener.acknowledging.set()
            assert [each.join()[0].status_code for each in posts[2:]] == [200, 200]

    def test_what_is_not_durable_in_time_is_to_be_sent_again(self) -> None:
        with Listener({"acknowledge.timeout.ms": 50}) as listener:
            listener.acknowledging.clear()
            answer = listener.post(b"1")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert listener.messages == [b"1"]

    def test_what_was_given_up_before_it_was_read_is_not_delivered(self) -> None:
        with Listener({"acknowledge.timeout.ms": 50}) as listener:
            with listener.polling:
                assert [listener.post(b"%d" % number).status_code for number in range(3)] == [503] * 3
            assert listener.post(b"3").status_code == 200
            assert listener.messages == [b"3"]

    def test_more_than_may_be_pending_is_to_be_sent_later(self) -> None:
        with Listener({"pending.messages": 3}) as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b"1", b"2", b"3")
            listener.wait_for(3)
            refused = listener.post(b"4")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            listener.acknowledging.set()
            assert [each.status_code for each in posts.join()] == [200] * 3
            assert listener.post(b"4").status_code == 200

    def test_more_bytes_than_may_be_pending_are_to_be_sent_later(self) -> None:
        with Listener({"pending.bytes": 1000, "max.body.bytes": 600}) as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b'"%s"' % (b"a" * 500))
            listener.wait_for(1)
            assert listener.post(b'"%s"' % (b"b" * 510)).status_code == 503
            listener.acknowledging.set()
            assert posts.join()[0].status_code == 200
            assert listener.post(b'"%s"' % (b"b" * 510)).status_code == 200
            assert listener.metrics.snapshot()["webhook.hook-bytes-pending"] == 0

    def test_requests_that_wait_are_answered_when_it_stops(self) -> None:
        with Listener() as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b"1", b"2")
            listener.wait_for(2)
            before = threading.active_count()
            listener.consumer.stop()
            assert [(each.status_code, each.headers["retry-after"]) for each in posts.join()] == [
                (503, "1")
            ] * 2
            assert "stopping" in posts.answers[0].json()["error"]
            assert "webhook hook" not in {each.name for each in threading.enumerate()}
            assert threading.active_count() < before

    def test_a_request_that_has_not_come_whole_is_answered_when_it_stops(self) -> None:
        with (
            Listener() as listener,
            socket.create_connection(("127.0.0.1", listener.consumer.port)) as sender,
        ):
            sender.sendall(b"POST /events HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nbeg")
            assert listener.post(b"1").status_code == 200
            listener.consumer.stop()
            assert sender.recv(1000).startswith(b"HTTP/1.1 503 ")

    def test_its_health_can_be_asked(self) -> None:
        with Listener({"health.path": "/up"}) as listener:
            assert listener.http.get("/up").json() == {"status": "ok"}

    def test_what_is_no_endpoint_is_not_found_and_only_posts_are_taken(self) -> None:
        with Listener() as listener:
            unknown, read = listener.post(b"1", path="/others"), listener.http.get("/events")
            assert (unknown.status_code, unknown.json()) == (404, {"error": "nothing is received at /others"})
            assert (read.status_code, read.json()) == (405, {"error": "GET is not taken at /events"})
            assert read.headers["allow"] == "POST"
            assert not listener.received

    @pytest.mark.parametrize("path", ["/in", "/in/"])
    def test_a_slash_at_the_end_of_a_path_makes_no_difference(self, path: str) -> None:
        with Listener({"events.path": path}) as listener:
            assert [listener.post(b"1", path=each).status_code for each in ("/in", "/in/")] == [200, 200]

    def test_a_stream_may_have_a_path_of_its_own(self) -> None:
        with Listener({"events.path": "/from/github"}) as listener:
            assert listener.post(b"1", path="/from/github").status_code == 200
            assert listener.post(b"1").status_code == 404

    def test_requests_are_counted(self) -> None:
        with Listener() as listener:
            listener.post(b"1")
            listener.post(b"wrong")
            found = listener.metrics.snapshot()
            assert (found["webhook.hook-requests"], found["webhook.hook-requests-refused"]) == (2, 1)


class TestRepeatedRequests:
    def test_one_that_is_under_way_is_joined(self) -> None:
        with Listener() as listener:
            listener.acknowledging.clear()
            first = listener.posting(b"1", headers={"idempotency-key": "a"})
            listener.wait_for(1)
            second = listener.posting(b"1", headers={"idempotency-key": "a"})
            other = listener.posting(b"2", headers={"idempotency-key": "b"})
            listener.wait_for(2)
            listener.acknowledging.set()
            assert [each.join()[0].json() for each in (first, second, other)] == [{"messages": 1}] * 3
            assert listener.messages == [b"1", b"2"]

    def test_one_that_is_durable_is_answered_and_not_delivered_again(self) -> None:
        with Listener() as listener:
            answers = [
                listener.post(b'{"n":1}\n{"n":2}', {**LINES, "idempotency-key": "a"}) for _ in range(3)
            ]
            assert [(each.status_code, each.json()) for each in answers] == [(200, {"messages": 2})] * 3
            assert len(listener.received) == 2

    def test_one_that_came_too_late_for_its_sender_is_delivered_once(self) -> None:
        with Listener({"acknowledge.timeout.ms": 50}) as listener:
            listener.acknowledging.clear()
            assert [listener.post(b"1", {"idempotency-key": "a"}).status_code for _ in range(2)] == [503, 503]
            listener.acknowledging.set()
            while (answer := listener.post(b"1", {"idempotency-key": "a"})).status_code == 503:
                pass
            assert answer.status_code == 200
            assert listener.messages == [b"1"]

    def test_the_same_key_with_another_body_is_a_mistake(self) -> None:
        with Listener() as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b"1", headers={"idempotency-key": "a"})
            listener.wait_for(1)
            assert listener.post(b"2", {"idempotency-key": "a"}).status_code == 422
            listener.acknowledging.set()
            posts.join()
            assert listener.post(b"2", {"idempotency-key": "a"}).status_code == 422
            assert listener.messages == [b"1"]

    def test_only_so_many_are_remembered(self) -> None:
        with Listener({"idempotency.keys": 2}) as listener:
            for key in "abca":
                assert listener.post(b"1", {"idempotency-key": key}).status_code == 200
            assert len(listener.received) == 4
            listener.post(b"1", {"idempotency-key": "a"})
            assert len(listener.received) == 4

    def test_the_key_is_a_header_of_the_message(self) -> None:
        with Listener() as listener:
            listener.post(b"1", {"idempotency-key": "a", "x-other": "b"})
            assert listener.received[0].headers == {"idempotency-key": b"a"}
            assert listener.post(b"1", {"idempotency-key": "a" * 256}).status_code == 400


class TestCredentials:
    @pytest.mark.parametrize(
        "given",
        [None, "", "secret", "Basic secret", "Bearer", "Bearer wrong", "Bearer secretsecret", "Bearer é"],
    )
    def test_without_the_token_nothing_is_taken(self, given: str | None) -> None:
        with Listener({"token": "secret"}) as listener:
            headers = {} if given is None else {b"authorization": given.encode("latin-1")}
            answer = listener.post(b"1", headers)  # type: ignore[arg-type]
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "secret" not in answer.text
            assert listener.post(b"1", {"authorization": "Bearer secret"}).status_code == 200
            assert len(listener.received) == 1

    def test_several_tokens_are_good_while_one_replaces_another(self) -> None:
        with Listener({"events.token": "old, new"}) as listener:
            tokens = ("old", "new", "old, new", "ol")
            answers = [
                listener.post(b"1", {"authorization": f"bearer {token}"}).status_code for token in tokens
            ]
            assert answers == [200, 200, 401, 401]

    def test_a_signature_is_of_the_very_body(self) -> None:
        with Listener({"signature.secret": "secret"}) as listener:
            body = b'{"n": 1}'
            name = "X-Hub-Signature-256"
            assert listener.post(body, {name: signed("secret", body)}).status_code == 200
            for wrong in (
                signed("secret", b'{"n":1}'),
                signed("other", body),
                signed("secret", body)[7:],
                "sha256=",
                "",
            ):
                assert listener.post(body, {name: wrong}).status_code == 401
            assert listener.post(body).status_code == 401
            assert listener.messages == [body]

    def test_a_signature_with_a_time_cannot_be_used_later(self) -> None:
        settings = {
            "signature.secret": "secret",
            "signature.timestamp.header": "X-Time",
            "signature.header": "X-Sign",
        }
        with Listener({**settings, "signature.tolerance.ms": 600_000}) as listener:

            def post(stamp: str, of: str | None = None) -> int:
                return listener.post(
                    b"1", {"x-time": stamp, "x-sign": signed("secret", b"1", of or stamp)}
                ).status_code

            now = int(time.time())
            assert post(str(now)) == post(str(now - 300)) == 200
            assert [
                post(str(now - 1_200)),
                post(str(now + 1_200)),
                post(str(now), of=str(now - 1)),
                post("later"),
                post("9" * 30),
            ] == [401] * 5
            assert listener.post(b"1", {"x-sign": signed("secret", b"1")}).status_code == 401
            assert len(listener.received) == 2

    def test_where_both_are_configured_both_are_needed(self) -> None:
        with Listener({"token": "t", "signature.secret": "s"}) as listener:
            proofs = {"authorization": "Bearer t", "x-hub-signature-256": signed("s", b"1")}
            for name in proofs:
                assert listener.post(b"1", {name: proofs[name]}).status_code == 401
            assert listener.post(b"1", proofs).status_code == 200

    def test_a_web_page_cannot_send_to_who_asks_for_no_credentials(self) -> None:
        with Listener() as listener:
            assert listener.post(b"1", {"origin": "https://evil.example"}).status_code == 403
        with Listener({"token": "t"}) as listener:
            assert (
                listener.post(
                    b"1", {"origin": "https://page.example", "authorization": "Bearer t"}
                ).status_code
                == 200
            )

    def test_secrets_may_come_from_the_environment_or_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOOK_TOKEN", "from-environment")
        (tmp_path / "secret.txt").write_text("from-file\n")
        with Listener(
            {"token.env": "HOOK_TOKEN", "events.signature.secret.file": "secret.txt"}, tmp_path
        ) as listener:
            proofs = {
                "authorization": "Bearer from-environment",
                "x-hub-signature-256": signed("from-file", b"1"),
            }
            assert listener.post(b"1", proofs).status_code == 200

    def test_secrets_are_never_headers_of_messages(self) -> None:
        with Listener({"token": "t", "signature.secret": "s", "headers": "*"}) as listener:
            proofs = {
                "authorization": "Bearer t",
                "x-hub-signature-256": signed("s", b"1"),
                "cookie": "a=b",
                "x-event": "push",
            }
            assert listener.post(b"1", proofs).status_code == 200
            headers = listener.received[0].headers
            assert headers is not None and headers["x-event"] == b"push"
            assert not headers.keys() & {"authorization", "x-hub-signature-256", "cookie"}


class TestBodies:
    def test_json_is_taken_as_it_stands(self) -> None:
        body = b' {"big": 123456789012345678901234567890, "n": 1.0, "\\u00e4": "\xc3\xa4"} '
        with Listener() as listener:
            assert listener.post(body).status_code == 200
            assert listener.messages == [body]

    @pytest.mark.parametrize("body", [b"", b"{", b"nothing", b"\xff", b'{"a":NaN}', b"1 2", b"[1,]"])
    def test_what_is_not_json_is_refused(self, body: bytes) -> None:
        with Listener() as listener:
            answer = listener.post(body)
            assert answer.status_code == 400
            assert "not JSON" in answer.json()["error"]
            assert not listener.received

    def test_raw_bodies_may_be_anything(self) -> None:
        bodies = [b"", b"{", bytes(range(256)), b"\n\n"]
        with Listener({"format": "raw"}) as listener:
            assert [listener.post(body, LINES).status_code for body in bodies] == [200] * 4
            assert listener.messages == bodies

    def test_lines_are_messages_all_or_none(self) -> None:
        with Listener() as listener:
            assert listener.post(b'{"n":1}\r\n\n {"n":2}\n3', LINES).json() == {"messages": 3}
            assert listener.messages == [b'{"n":1}', b' {"n":2}', b"3"]
            answer = listener.post(
                b'{"n":4}\n{"n":\n{"n":6}', {"content-type": "application/x-ndjson; charset=utf-8"}
            )
            assert answer.status_code == 400
            assert "line 2" in answer.json()["error"]
            assert listener.post(b"\n\n", LINES).status_code == 400
            assert len(listener.received) == 3

    def test_arrays_are_split_where_that_is_wanted(self) -> None:
        body = b'[{"n": 1.0}, 123456789012345678901234567890, "x", [2]]'
        with Listener({"split.arrays": "true"}) as listener:
            assert listener.post(body).json() == {"messages": 4}
            assert listener.messages == [b'{"n": 1.0}', b"123456789012345678901234567890", b'"x"', b"[2]"]
            assert listener.post(b"[]").status_code == 400
            assert listener.post(b'{"n":[1,2]}').json() == {"messages": 1}
        with Listener() as listener:
            assert listener.post(body).json() == {"messages": 1}
            assert listener.messages == [body]

    @given(
        values=st.lists(
            st.dictionaries(st.text(), st.integers(-(2**53), 2**53) | st.text() | st.lists(st.booleans())),
            min_size=1,
        )
    )
    def test_lines_and_arrays_hold_the_same_messages(self, values: list[object]) -> None:
        endpoint = WebhookSettings("hook", configured({"split.arrays": "true"})).endpoint(STREAM)
        lines = messages_of(endpoint, b"\n".join(map(orjson.dumps, values)), "application/x-ndjson", None)
        array = messages_of(endpoint, orjson.dumps(values), "application/json", None)
        assert (
            [each.message for each in lines]
            == [each.message for each in array]
            == list(map(orjson.dumps, values))
        )

    @given(body=st.binary(max_size=50))
    def test_whatever_is_posted_is_taken_or_refused(self, body: bytes) -> None:
        endpoint = WebhookSettings("hook", configured({"split.arrays": "true"})).endpoint(STREAM)
        for kind in ("application/json", "application/x-ndjson"):
            try:
                assert messages_of(endpoint, body, kind, None)
            except BadBodyError as error:
                assert str(error)

    def test_a_too_large_body_is_refused_whatever_length_is_declared(self) -> None:
        with Listener({"max.body.bytes": 1000}) as listener:
            assert listener.post(b'"%s"' % (b"a" * 998)).status_code == 200
            assert listener.post(b'"%s"' % (b"a" * 999)).status_code == 413
            pieces = (b"a" * 100 for _ in range(11))
            answer = listener.http.post("/events", content=pieces)
            assert "content-length" not in answer.request.headers
            assert answer.status_code == 413
            assert len(listener.received) == 1
            assert listener.metrics.snapshot()["webhook.hook-bytes-pending"] == 0

    def test_more_messages_than_can_ever_be_taken_are_refused(self) -> None:
        with Listener({"pending.messages": 3}) as listener:
            assert listener.post(b"1\n2\n3", LINES).status_code == 200
            assert listener.post(b"1\n2\n3\n4", LINES).status_code == 413

    def test_a_compressed_body_is_refused(self) -> None:
        with Listener({"format": "raw"}) as listener:
            assert listener.post(b"...", {"content-encoding": "gzip"}).status_code == 415

    def test_nesting_is_taken_or_refused_however_deep_it_is(self) -> None:
        bodies = [b"[" * depth + b"]" * depth for depth in (500, 900, 980, 990, 1000, 1010, 1023, 1024, 5000)]
        with Listener({"split.arrays": "true"}) as listener:
            answers = [listener.post(body) for body in bodies]
            assert [each.status_code for each in answers] == sorted(each.status_code for each in answers)
            assert {each.status_code for each in answers} == {200, 400}
            assert answers[-1].json()["error"]

    @pytest.mark.parametrize("path", [b"/events", b"/others"])
    def test_a_request_with_an_unclear_end_is_refused_with_all_after_it(
        self, path: bytes
    ) -> None:
        head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n" % path
        with (
            Listener() as listener,
            socket.create_connection(("127.0.0.1", listener.consumer.port), timeout=60) as sender,
        ):
            sender.sendall(
                head + b"transfer-encoding: chunked\r\n\r\n3\r\n123\r\n0\r\n\r\n" + head + b"\r\n456"
            )
            said = b"".join(iter(lambda: sender.recv(1000), b""))
            assert said.startswith(b"HTTP/1.1 400 ") and said.count(b"HTTP/1.1") == 1
            assert not listener.messages


class TestKeys:
    def test_a_key_is_the_very_bytes_that_were_sent(self) -> None:
        key = "\u00e9".encode() + b"\xff"
        for settings, post in (
            ({"key.header": "X-Key"}, {"headers": {b"X-Key": key}}),
            ({"key.query": "k"}, {"path": "/events?k=%C3%A9%FF"}),
            ({"key.query": "k\u00e9"}, {"path": "/events?k%C3%A9=%C3%A9%FF"}),
        ):
            with Listener(settings) as listener:
                assert listener.post(b"1", **post).status_code == 200  # type: ignore[arg-type]
                assert listener.received[0].key == key

    def test_a_key_is_a_header_a_parameter_or_a_field(self) -> None:
        with Listener({"key.header": "X-Device"}) as listener:
            assert listener.post(b"1", {"x-device": "a"}).status_code == 200
            assert listener.post(b"1").status_code == 400
            assert [each.key for each in listener.received] == [b"a"]
        with Listener({"key.query": "device"}) as listener:
            assert listener.post(b"1", path="/events?device=a%20%C3%A4").status_code == 200
            assert listener.post(b"1", path="/events?other=a").status_code == 400
            assert [each.key for each in listener.received] == ["a ä".encode()]
        with Listener({"key.field": "device"}) as listener:
            assert listener.post(b'{"device":"a"}\n{"device":7}', LINES).status_code == 200
            for wrong in (b"{}", b'{"device":null}', b"7", b'{"device":{}}'):
                assert listener.post(wrong).status_code == 400
            assert [each.key for each in listener.received] == [b"a", b"7"]

    def test_a_key_decides_on_the_partition_and_without_one_they_take_turns(self) -> None:
        with Listener({"events.partitions": 3, "key.field": "k"}) as listener:
            listener.post(b"\n".join(b'{"k":"%d"}' % number for number in range(50)), LINES)
            assert len(listener.wait_for(50)) == 50
            for each in listener.received:
                assert each.ssp.partition == partition_for(each.key, 3)
        with Listener({"events.partitions": 3}) as listener:
            for number in range(6):
                listener.post(b"%d" % number)
            assert [each.ssp.partition for each in listener.received] == [0, 1, 2, 0, 1, 2]

    def test_a_request_over_several_partitions_waits_for_all_of_them(self) -> None:
        with Listener({"events.partitions": 2}) as listener:
            listener.acknowledging.clear()
            posts = listener.posting(b"1\n2")
            posts.join()
            assert posts.answers[0].status_code == 400  # it is not said to be lines
            posts = Posts([lambda: listener.post(b"1\n2", LINES)])
            listener.wait_for(2)
            listener.consumer.acknowledge({listener.ssps[0]: "0"})
            assert not posts.answers
            listener.consumer.acknowledge({listener.ssps[1]: "0"})
            assert posts.join()[0].status_code == 200


class TestConfiguration:
    @pytest.mark.parametrize(
        ("settings", "key", "what"),
        [
            ({"host": "0.0.0.0"}, "host", "set systems.hook.token"),
            ({"port": "99999"}, "port", "no port"),
            (
                {"host": "no.such.host.example", "authentication": "none"},
                "port",
                "cannot listen on no.such.host.example",
            ),
            ({"port": "x"}, "port", "not a whole number"),
            ({"format": "xml"}, "format", "not one of json, raw"),
            ({"key.header": "a", "key.field": "b"}, "key.field", "a message has one key"),
            ({"format": "raw", "key.field": "b"}, "key.field", "needs format=json"),
            ({"max.body.bytes": "100000000"}, "max.body.bytes", "more than systems.hook.pending.bytes"),
            ({"token": "with blank"}, "token", "printable"),
            ({"token.env": "NOT_THERE"}, "token.env", "no environment variable NOT_THERE"),
            ({"token": "a", "token.file": "b"}, "token.file", "systems.hook.token is set as well"),
            ({"token.file": "not.there"}, "token.file", "not.there"),
            ({"events.path": "events"}, "streams.events.path", "no path"),
            ({"events.path": "/health"}, "streams.events.path", "health.path"),
            ({"certificate": "not.there"}, "certificate", "cannot be used"),
            ({"events.pth": "/x"}, "streams.events.pth", "did you mean path?"),
            ({"signature.header": "a b"}, "signature.header", "no name of an HTTP header"),
            ({"connections.max": "0"}, "connections.max", "too small"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_key(
        self, tmp_path: Path, settings: dict[str, str], key: str, what: str
    ) -> None:
        with pytest.raises(ConfigError, match=what.replace("?", r"\?")) as raised:
            Listener(settings, tmp_path).__enter__()
        assert str(raised.value).startswith(f"systems.hook.{key}")

    def test_everybody_may_send_only_where_that_is_said(self) -> None:
        assert WebhookSettings("hook", configured({"host": "0.0.0.0", "authentication": "none"})).endpoint(
            STREAM
        )
        assert WebhookSettings("hook", configured({"host": "0.0.0.0", "token": "t"})).endpoint(STREAM)
        assert WebhookSettings("hook", configured({"host": "localhost"})).endpoint(STREAM)

    def test_a_port_that_is_taken_is_told_with_its_key(self) -> None:
        taken = (
            r"systems.hook.port \(.*\): cannot listen on 127.0.0.1:\d+: address already in use; the job may "
            r"run already"
        )
        with Listener() as listener, pytest.raises(ConfigError, match=taken):
            Listener({"port": listener.consumer.port, "listen.timeout.ms": 0}).__enter__()

    def test_a_port_that_somebody_still_has_is_waited_for(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            taken.listen()
            leaving = threading.Timer(0.2, taken.close)
            leaving.start()
            with Listener({"port": port, "listen.timeout.ms": 60_000}) as listener:
                assert listener.post(b"1").status_code == 200
            leaving.join()

    def test_a_container_that_reads_a_part_of_a_stream_cannot_listen_for_it(self) -> None:
        config = configured({"port": 0, "events.partitions": 2})
        consumer = Systems(config).consumer("hook", MetricsRegistry())
        consumer.register(SystemStreamPartition("hook", "events", 1), "0")
        with pytest.raises(ConfigError, match="hook.events has 2 partitions, of which only 1 would be read"):
            consumer.start()

    def test_secrets_are_not_shown(self) -> None:
        config = configured({"token": "hidden1", "signature.secret": "hidden2"})
        settings = WebhookSettings("hook", config)
        endpoint = settings.endpoint(STREAM)
        shown = f"{config} {endpoint} {endpoint.credentials} {vars(settings)}"
        assert "hidden" not in shown
