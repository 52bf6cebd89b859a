"""The jobs of a notebook: cells, their tasks and configurations, streams, files."""
