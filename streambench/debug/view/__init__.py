"""The view of a session as data: rows, bars, rates and texts that panel and terminal draw."""
