"""``python -m cellrepro``: the command line, where its own program is not on the PATH."""

from cellrepro.cli.main import main

main()
