"""Streams and stores as DataFrames: ``format("streambench")`` of Spark's Python data source API."""
