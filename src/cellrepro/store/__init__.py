"""What happened, kept: specs, manifests, digests, ledgers, checkpoints."""
