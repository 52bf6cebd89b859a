
import streambench as sb


class Ratio(sb.StreamTask):
    def init(self, context):
        self.store = context.store("n")

    def process(self, envelope, collector, coordinator):
        self.store.put("all", (self.store.get("all") or 0) + 1)
        collector.send("log.out", envelope.message["n"] / envelope.message["of"])
