"""Tables of SQLite as streams: every row is a message, and its id the offset.

CREATE TABLE clicks (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, message BLOB)
"""

import sqlite3

from streambench import PullSystemFactory, StreamConsumer, StreamMessage, StreamProducer


class Tail(StreamConsumer):
    def __init__(self, path, table, offset):
        self.db = sqlite3.connect(path)
        self.select = f'SELECT id, key, message FROM "{table}" WHERE id >= ? ORDER BY id LIMIT 1000'
        self.next, self.rows = int(offset or 0), iter(())

    def get_message(self):
        row = next(self.rows, None)
        if row is None:
            self.rows = iter(self.db.execute(self.select, (self.next,)).fetchall())
            row = next(self.rows, None)
        if row is None:
            return None
        id, key, message = row
        self.next = id + 1
        return StreamMessage(message, str(id), key)

    def close(self):
        self.db.close()


class Append(StreamProducer):
    def __init__(self, path, table):
        self.db = sqlite3.connect(path)
        self.insert = f'INSERT INTO "{table}" (key, message) VALUES (?, ?)'
        self.pending = []

    def send(self, message, key=None):
        self.pending.append((key, message))

    def commit(self):
        with self.db:
            self.db.executemany(self.insert, self.pending)
        self.pending.clear()

    def close(self):
        self.db.close()


class TableSystem(PullSystemFactory):
    numbered = True

    def partitions(self, system, stream, config):
        db = sqlite3.connect(config.path(f"systems.{system}.path"))
        (found,) = db.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (stream,)
        ).fetchone()
        db.close()
        return found

    def consumer(self, system, stream, partition, offset, config):
        return Tail(config.path(f"systems.{system}.path"), stream, offset)

    def producer(self, system, stream, config):
        return Append(config.path(f"systems.{system}.path"), stream)
