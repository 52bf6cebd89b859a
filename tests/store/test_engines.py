"""All engines, and the layers above them, keep the contract of an engine."""

from __future__ import annotations

from pathlib import Path

from streambench.store.cache import CachedEngine
from streambench.store.engine import StoreEngine
from streambench.store.expiry import ExpiringEngine
from streambench.store.memory import MemoryEngine
from streambench.store.rocksdb import RocksDbEngine
from streambench.testing.stores import StoreEngineContract


class TestMemory(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return MemoryEngine()


class TestRocksDb(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return RocksDbEngine(directory / "db")


class TestCachedMemory(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return CachedEngine(MemoryEngine(), 10, 4)


class TestCachedRocksDb(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return CachedEngine(RocksDbEngine(directory / "db"), 10, 4)


class TestExpiringMemory(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return ExpiringEngine(MemoryEngine(), 1_000, lambda: 0)


class TestExpiringCachedRocksDb(StoreEngineContract):
    def engine(self, directory: Path) -> StoreEngine:
        return ExpiringEngine(CachedEngine(RocksDbEngine(directory / "db"), 10, 4), 1_000, lambda: 0)
