"""The names of `samebits` that the lab exports, too."""

from samebits import BadInput as BadInput
from samebits import NotPossibleHere as NotPossibleHere
from samebits import add_seed_to as add_seed_to
from samebits import audit as audit
from samebits import check_dataset as check_dataset
from samebits import check_repeatable as check_repeatable
from samebits import check_seed_of as check_seed_of
from samebits import determinism_warnings as determinism_warnings
from samebits import generator as generator
from samebits import item_generator as item_generator
from samebits import loader_arguments as loader_arguments
from samebits import portable as portable
from samebits import portable_operations as portable_operations
from samebits import rank_seed as rank_seed
from samebits import restore as restore
from samebits import seed_everything as seed_everything
from samebits import seeded as seeded
from samebits import split as split
