"""Who says it: keys of OpenSSH, signatures by an agent or a key file, and DSSE envelopes."""
