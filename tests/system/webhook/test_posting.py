"""What is sent to a webhook is posted until it is taken."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from streambench.errors import ConfigError, SerdeError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import SystemProducer
from streambench.system.partitioner import partition_for
from streambench.system.systems import Systems
from tests.ports import free_port
from tests.system.webhook.listening import STREAM, Listener, configured
from tests.system.webhook.receiving import TAKEN, Answer, Receiver, Request, certificate
from tests.system.webhook.test_receiving import signed

QUICK = {"post.backoff.ms": 1, "post.backoff.max.ms": 5}


class Posting:
    """A producer at work that posts to ``hook.events``."""

    def __init__(self, producer: SystemProducer, metrics: MetricsRegistry) -> None:
        self.producer = producer
        self.metrics = metrics

    def send(
        self, *messages: Any, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        for message in messages:
            self.producer.send("task", OutgoingMessageEnvelope(STREAM, message, key, headers=headers))

    def flush(self) -> None:
        self.producer.flush("task")


@contextmanager
def posting(settings: Mapping[str, Any], directory: Path | None = None) -> Iterator[Posting]:
    metrics = MetricsRegistry()
    producer = Systems(configured({**QUICK, **settings}, directory)).producer("hook", metrics)
    producer.register("task")
    producer.start()
    try:
        yield Posting(producer, metrics)
    finally:
        producer.stop()


def answering(*answers: Answer | None) -> Any:
    """These answers in turn, and then that it is taken."""
    left = iter(answers)
    return lambda request: next(left, TAKEN)


def refused(status: int, told: bytes = b"", **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, told


class TestTaken:
    def test_messages_are_posted_in_order_and_a_flush_waits_for_all(self) -> None:
        with Receiver() as receiver, posting({"url": receiver.url + "/in"}) as out:
            out.send(*(b"%d" % number for number in range(50)))
            out.flush()
            assert receiver.bodies == [b"%d" % number for number in range(50)]
            assert {(each.path, each.headers["content-type"]) for each in receiver.requests} == {
                ("/in", "application/json")
            }
            assert len({each.headers["idempotency-key"] for each in receiver.requests}) == 50
            assert out.metrics.snapshot()["webhook.hook-posts"] == 50

    def test_a_url_may_name_the_stream_and_a_stream_have_its_own(self) -> None:
        with (
            Receiver() as receiver,
            posting({"url": receiver.url + "/in/{stream}", "events.url": receiver.url + "/own"}) as out,
        ):
            out.send(b"1")
            out.producer.send("task", OutgoingMessageEnvelope(SystemStream("hook", "others"), b"2"))
            out.flush()
            assert sorted(each.path for each in receiver.requests) == ["/in/others", "/own"]

    def test_several_messages_may_be_one_request(self) -> None:
        with (
            Receiver() as receiver,
            posting({"url": receiver.url, "post.messages": 4, "post.linger.ms": 3_600_000}) as out,
        ):
            out.send(*(b"%d" % number for number in range(10)))
            out.flush()
            assert receiver.bodies == [b"0\n1\n2\n3", b"4\n5\n6\n7", b"8\n9"]
            assert {each.headers["content-type"] for each in receiver.requests} == {"application/x-ndjson"}

    def test_what_waits_for_others_does_not_wait_for_ever(self) -> None:
        taken = threading.Event()

        def answer(request: Request) -> Answer:
            taken.set()
            return TAKEN

        with (
            Receiver(answer) as receiver,
            posting({"url": receiver.url, "post.messages": 4, "post.linger.ms": 1}) as out,
        ):
            out.send(b"1")
            assert taken.wait(60)

    def test_a_message_that_is_no_line_or_has_headers_goes_by_itself(self) -> None:
        with (
            Receiver() as receiver,
            posting({"url": receiver.url, "post.messages": 9, "post.linger.ms": 3_600_000}) as out,
        ):
            out.send(b"1", b"2", b"[3,\n3]", b"4")
            out.send(b"5", headers={"X-Kind": b"five"})
            out.send(b"6")
            out.flush()
            assert receiver.bodies == [b"1\n2", b"[3,\n3]", b"4", b"5", b"6"]
            assert receiver.requests[3].headers["x-kind"] == "five"

    def test_several_may_be_under_way_and_those_of_one_key_stay_in_order(self) -> None:
        met = threading.Barrier(2, timeout=60)
        keys = [
            next(key for key in (b"a", b"b", b"c", b"d") if partition_for(key, 2) == lane)
            for lane in range(2)
        ]

        def answer(request: Request) -> Answer:
            if request.body.endswith(b"-0"):
                met.wait()  # two posts at once, or never
            return TAKEN

        with (
            Receiver(answer) as receiver,
            posting({"url": receiver.url, "post.concurrency": 2, "format": "raw"}) as out,
        ):
            for number in range(10):
                for key in keys:
                    out.send(b"%b-%d" % (key, number), key=key)
            out.flush()
            for key in keys:
                assert [each for each in receiver.bodies if each.startswith(key)] == [
                    b"%b-%d" % (key, number) for number in range(10)
                ]

    def test_a_key_goes_where_the_configuration_says(self) -> None:
        with Receiver() as receiver:
            for settings in ({"key.header": "X-Device"}, {"key.query": "the device"}, {}):
                with posting({"url": receiver.url + "/in?a=b", **settings}) as out:
                    out.send(b"1", key=b"d 1&")
                    out.flush()
            assert [each.headers.get("x-device") for each in receiver.requests] == ["d 1&", None, None]
            assert [each.path for each in receiver.requests] == [
                "/in?a=b",
                "/in?a=b&the%20device=d%201%26",
                "/in?a=b",
            ]

    def test_headers_of_a_message_are_posted_but_not_those_that_are_ours(self) -> None:
        with Receiver() as receiver, posting({"url": receiver.url, "token": "t"}) as out:
            out.send(
                b"1",
                headers={
                    "X-Event": b"push",
                    "Authorization": b"Bearer other",
                    "Host": b"other",
                    "Idempotency-Key": b"mine",
                },
            )
            out.flush()
            headers = receiver.requests[0].headers
            assert (headers["x-event"], headers["authorization"], headers["idempotency-key"]) == (
                "push",
                "Bearer t",
                "mine",
            )
            assert headers["host"] != "other"

    def test_what_cannot_be_posted_is_an_error_of_the_message(self) -> None:
        with Receiver() as receiver, posting({"url": receiver.url, "key.header": "X-Key"}) as out:
            for what in (
                {"message": None},
                {"message": "text"},
                {"key": b"\n"},
                {"key": "text"},
                {"headers": {"a": b"\xff"}},
            ):
                with pytest.raises(SerdeError, match="hook.events"):
                    envelope: dict[str, Any] = {"message": b"1", **what}
                    out.producer.send("task", OutgoingMessageEnvelope(STREAM, **envelope))
            out.flush()
            assert not receiver.requests

    def test_a_task_that_sends_waits_while_too_many_are_pending(self) -> None:
        may_answer, sent = threading.Event(), []

        def answer(request: Request) -> Answer:
            may_answer.wait()
            return TAKEN

        with Receiver(answer) as receiver, posting({"url": receiver.url, "post.pending.messages": 3}) as out:

            def send() -> None:
                for number in range(10):
                    out.send(b"%d" % number)
                    sent.append(number)

            sending = threading.Thread(target=send)
            sending.start()
            while len(sent) < 3:
                sending.join(0.01)
            may_answer.set()
            sending.join()
            out.flush()
            assert len(receiver.requests) == 10


class TestTriedAgain:
    @pytest.mark.parametrize(
        "failure", [refused(500), refused(503), refused(429, retry_after="0"), refused(408), None]
    )
    def test_what_fails_for_now_is_posted_again_with_the_same_key(self, failure: Answer | None) -> None:
        with Receiver(answering(failure, failure)) as receiver, posting({"url": receiver.url}) as out:
            out.send(b"1", b"2")
            out.flush()
            assert receiver.bodies == [b"1", b"1", b"1", b"2"]
            first, *others = [each.headers["idempotency-key"] for each in receiver.requests]
            assert others[:2] == [first, first] != others[2:]
            assert out.metrics.snapshot()["webhook.hook-posts-repeated"] == 2

    def test_a_receiver_that_is_not_there_is_waited_for(self, caplog: pytest.LogCaptureFixture) -> None:
        port = free_port()
        with posting({"url": f"http://127.0.0.1:{port}/events"}) as out:
            out.send(b"1")
            while "it is tried again" not in caplog.text:
                time.sleep(0)
            with Listener({"port": port}) as listener:
                out.flush()
                assert listener.messages == [b"1"]

    def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(self) -> None:
        may_answer = threading.Event()

        def answer(request: Request) -> Answer:
            if request.body == b"1" and len(receiver.requests) == 1:
                may_answer.wait()
            return TAKEN

        with Receiver(answer) as receiver:
            with posting({"url": receiver.url, "post.timeout.ms": 50}) as out:
                out.send(b"1")
                out.flush()
                # A machine that is busy may not answer the second one in time, either.
                assert len(receiver.bodies) >= 2 and set(receiver.bodies) == {b"1"}
            may_answer.set()

    @pytest.mark.parametrize("asked", ["1", lambda: formatdate(time.time() + 2, usegmt=True)])
    def test_a_pause_that_the_receiver_asks_for_is_kept(self, asked: Any) -> None:
        times = []

        def answer(request: Request) -> Answer:
            times.append(time.monotonic())
            return (
                refused(503, retry_after=asked if isinstance(asked, str) else asked())
                if len(times) == 1
                else TAKEN
            )

        with Receiver(answer) as receiver, posting({"url": receiver.url}) as out:
            out.send(b"1")
            out.flush()
            assert times[1] - times[0] >= 0.9

    def test_it_is_given_up_in_the_end(self) -> None:
        with (
            Receiver(lambda request: refused(503, b"full")) as receiver,
            posting({"url": receiver.url, "post.retry.ms": 100}) as out,
        ):
            out.send(b"1", b"2")
            with pytest.raises(
                StreamSystemError,
                match=r"hook\.events: POST to .* was answered 503 .*: full; given up after \d+ attempts",
            ):
                out.flush()
            assert set(receiver.bodies) == {b"1"}

    def test_a_pause_that_is_too_long_is_said_and_not_kept(self) -> None:
        with (
            Receiver(answering(refused(429, retry_after="86400"))) as receiver,
            posting({"url": receiver.url}) as out,
        ):
            out.send(b"1")
            with pytest.raises(StreamSystemError, match="it asks for 86400 s more"):
                out.flush()

    def test_a_stop_does_not_wait_for_what_is_tried_again(self) -> None:
        before = set(threading.enumerate())
        with posting(
            {
                "url": f"http://127.0.0.1:{free_port()}",
                "post.backoff.ms": 3_600_000,
                "post.backoff.max.ms": 3_600_000,
            }
        ) as out:
            out.send(b"1")
        assert not {each for each in threading.enumerate() if each.name == "webhook posts"} - before
        with pytest.raises(StreamSystemError, match="stopped"):
            out.flush()


class TestRefused:
    @pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 301])
    def test_what_is_refused_for_good_ends_it(self, status: int) -> None:
        answers = answering(
            TAKEN,
            refused(status, b"no \n such \x00 thing" + b"." * 9999, location="http://elsewhere.example"),
        )
        with Receiver(answers) as receiver, posting({"url": receiver.url + "/secret/path"}) as out:
            out.send(b"1", b"2", b"3")
            for _ in range(2):
                with pytest.raises(StreamSystemError) as raised:
                    out.flush()
                text = str(raised.value)
                assert f"hook.events: POST to {receiver.url} was answered {status}" in text
                assert "no such ? thing..." in text and len(text) < 400 and "/secret" not in text
            with pytest.raises(StreamSystemError):
                out.send(b"4")
            assert receiver.bodies == [b"1", b"2"]

    def test_a_receiver_that_repeats_our_secrets_does_not_have_them_told(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)

        def answer(request: Request) -> Answer:
            return refused(503 if len(receiver.requests) == 1 else 403, str(request.headers).encode())

        proofs = {"token": "hidden1", "signature.secret": "hidden2"}
        with Receiver(answer) as receiver, posting({"url": receiver.url + "/hidden3", **proofs}) as out:
            out.send(b"1")
            with pytest.raises(StreamSystemError) as raised:
                out.flush()
            assert "403" in str(raised.value)
            assert "hidden" not in f"{raised.value} {caplog.text} {raised.value.__cause__}"


class TestHeadersThatAreNone:
    @pytest.mark.parametrize(
        "what",
        [
            {"headers": {"trace id": b"x"}},
            {"headers": {"a:b": b"x"}},
            {"headers": {"": b"x"}},
            {"headers": {"trace": b"x "}},
            {"headers": {"trace": b"\tx"}},
            {"headers": {"trace": b"a\r\nb: c"}},
            {"key": b" k"},
            {"key": b"k "},
            {"key": "\u00e9".encode()},
        ],
    )
    def test_they_are_told_when_they_are_sent_and_the_rest_is_posted(self, what: dict[str, Any]) -> None:
        with Receiver() as receiver, posting({"url": receiver.url, "key.header": "X-Key"}) as out:
            with pytest.raises(
                SerdeError, match=r"hook\.events: .* cannot be (an|the name of an) HTTP header"
            ):
                out.send(b"1", **what)
            out.send(b"2", key=b"k y", headers={"trace": b"x y", "none": b""})
            out.flush()
            assert receiver.bodies == [b"2"]

    def test_a_key_that_makes_the_url_too_long_is_told_when_it_is_sent(self) -> None:
        with (
            posting({"url": "http://127.0.0.1:9", "key.query": "k"}) as out,
            pytest.raises(SerdeError, match="too long for a URL"),
        ):
            out.send(b"1", key=b"k" * 70_000)


class TestConfiguration:
    @pytest.mark.parametrize(
        "url",
        [
            "http://u:hidden@h:port/x",
            "http://u:hidden#@h/x",
            "http://[::zz]/hidden",
            "http://h:99999/hidden",
            "http://h:0/hidden",
            "http://h/" + "hidden" * 20_000,
        ],
    )
    @pytest.mark.parametrize("name", ["url", "events.url"])
    def test_a_url_that_is_none_is_told_at_the_start_and_none_of_it(self, name: str, url: str) -> None:
        with pytest.raises(ConfigError, match="is no URL of http") as raised, posting({name: url}):
            pass
        assert raised.value.key in ("systems.hook.url", "systems.hook.streams.events.url")
        assert "hidden" not in str(raised.value)

    def test_a_url_may_have_a_name_and_a_password_unless_there_is_a_token(self) -> None:
        with Receiver() as receiver:
            url = receiver.url.replace("//", "//user:word@")
            with posting({"url": url}) as out:
                out.send(b"1")
                out.flush()
            assert receiver.requests[0].headers["authorization"] == "Basic dXNlcjp3b3Jk"
            both = {"url": url, "token": "t"}
            with (
                pytest.raises(
                    ConfigError, match=r"systems\.hook\.url.*systems\.hook\.token is set"
                ) as raised,
                posting(both),
            ):
                pass
            assert "word@" not in str(raised.value)

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({}, r"systems.hook.streams.events.url: is missing"),
            ({"url": "ftp://example.org"}, r"systems.hook.url.*: is no URL of http or https"),
            (
                {"url": "http://x", "format": "raw", "post.messages": 2},
                "systems.hook.post.messages.*need format=json",
            ),
            ({"url": "http://x", "post.ca": "not.there"}, "systems.hook.post.ca.*not.there"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_key(
        self, tmp_path: Path, settings: dict[str, Any], what: str
    ) -> None:
        with pytest.raises(ConfigError, match=what), posting(settings, tmp_path) as out:
            out.send(b"1")

    def test_a_stream_that_nothing_is_said_of_is_unknown(self) -> None:
        with (
            posting({"events.url": "http://x"}) as out,
            pytest.raises(UnknownStreamError, match="there is no stream hook.others"),
        ):
            out.producer.send("task", OutgoingMessageEnvelope(SystemStream("hook", "others"), b"2"))


class TestProof:
    def test_what_is_posted_is_what_the_input_accepts(self) -> None:
        port = free_port()
        proofs = {"token": "t", "signature.secret": "s", "signature.timestamp.header": "X-Time", "port": port}
        with Listener(proofs) as listener, posting(proofs) as out:
            out.send(b"1", b"2")
            out.flush()
            assert listener.messages == [b"1", b"2"]

    def test_the_signature_is_that_of_github(self) -> None:
        with Receiver() as receiver, posting({"url": receiver.url, "signature.secret": "s"}) as out:
            out.send(b'{"n": 1}')
            out.flush()
            assert receiver.requests[0].headers["x-hub-signature-256"] == signed("s", b'{"n": 1}')

    def test_certificates_are_checked(self, tmp_path: Path) -> None:
        own = certificate(tmp_path)
        with Receiver(certificate=own) as receiver:
            with posting({"url": receiver.url}) as out:
                out.send(b"1")
                with pytest.raises(
                    StreamSystemError, match=r"CERTIFICATE_VERIFY_FAILED.*systems.hook.post.ca"
                ):
                    out.flush()
            assert not receiver.requests
            with posting({"url": receiver.url, "post.ca": "both.pem"}, tmp_path) as out:
                out.send(b"1")
                out.flush()
            assert receiver.bodies == [b"1"]

    def test_an_endpoint_may_have_a_certificate(self, tmp_path: Path) -> None:
        certificate(tmp_path)
        settings = {
            "port": free_port(),
            "certificate": "cert.pem",
            "certificate.key": "key.pem",
            "post.ca": "cert.pem",
        }
        with Listener(settings, tmp_path) as listener, posting(settings, tmp_path) as out:
            out.send(b"1")
            out.flush()
            assert listener.messages == [b"1"]
