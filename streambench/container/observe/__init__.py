"""Read-only views of a container: snapshots, metrics, reports."""
