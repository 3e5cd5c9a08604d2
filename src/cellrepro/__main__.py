"""``python -m cellrepro``."""

from cellrepro.cli import main

main()
