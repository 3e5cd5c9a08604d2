"""The tables of evidence/, one file a subject; `scripts/collect_findings.py` measures them."""
