"""What happened: digests, host, specs, the store."""
