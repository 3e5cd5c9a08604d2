"""Signatures: OpenSSH keys, the ssh-agent, and DSSE envelopes. Uses the ground rooms alone."""
