"""``python -m cellrepro``: the command line, where its own program is not on the PATH."""

from cellrepro.cli import main

main()
