"""The report over a store."""
