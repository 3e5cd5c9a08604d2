"""The command line: every verb calls what a notebook could call.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

# Each import adds its verbs to the application, in the order in which --help lists them.
# ruff: noqa: F401, I001
from cellrepro.cli import runs
from cellrepro.cli import masks
from cellrepro.cli import causes
from cellrepro.cli import grids
from cellrepro.cli import receive
from cellrepro.cli import export
from cellrepro.cli import files
from cellrepro.cli import track
from cellrepro.cli.main import main as main
