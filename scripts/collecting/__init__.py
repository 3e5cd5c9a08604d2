"""What `scripts/collect_findings.py` puts into evidence/, a file for each kind."""
