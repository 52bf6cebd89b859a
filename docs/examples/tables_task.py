"""Copies the big orders from one table into another."""

from streambench import OutgoingMessageEnvelope, StreamTask, SystemStream

BIG = SystemStream("shop", "big_orders")


class BigOnes(StreamTask):
    def process(self, envelope, collector, coordinator):
        if envelope.message["amount"] >= 100:
            collector.send(OutgoingMessageEnvelope(BIG, envelope.message))
