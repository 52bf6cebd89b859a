"""Files as streams: JSON lines, CSV and text, one file or a directory of partitions, complete or still
growing."""

from streambench.system.file.factory import FileSystemFactory

__all__ = ["FileSystemFactory"]
