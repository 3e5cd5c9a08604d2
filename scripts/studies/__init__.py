"""The studies of docs/findings.md, one file a study; `scripts/findings.py` writes the page."""
