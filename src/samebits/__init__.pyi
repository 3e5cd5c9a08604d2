"""The public names, by the question that they answer; editors and type checkers read them here."""

# The order is that of the questions, not of the alphabet.
# ruff: noqa: I001

# Does my step, my data set, repeat?
from .trace.check_dataset import check_dataset as check_dataset
from .trace.check_dataset import through_loader as through_loader
from .trace.check_repeatable import check_repeatable as check_repeatable
from .contention import contention as contention

# Which operation does not?
from .trace.batch_invariance import BatchDependent as BatchDependent
from .trace.batch_invariance import BatchInvariance as BatchInvariance
from .trace.batch_invariance import batch_invariance as batch_invariance
from .trace.nondeterministic_operation import NondeterministicOperation as NondeterministicOperation
from .trace.operation_audit import Audit as Audit
from .trace.operation_audit import Auditor as Auditor
from .trace.operation_audit import audit as audit
from .trace.torch_warnings import WarningLog as WarningLog
from .trace.torch_warnings import about_determinism as about_determinism
from .trace.torch_warnings import determinism_warnings as determinism_warnings

# Two runs: where did they part?
from .trace.draw_difference import first_draw_difference as first_draw_difference
from .trace.operation_alignment import Agreement as Agreement
from .trace.operation_alignment import Alignment as Alignment
from .trace.operation_alignment import agreement as agreement
from .trace.operation_alignment import align as align
from .trace.operation_alignment import named_operation as named_operation
from .trace.operation_alignment import named_operations as named_operations
from .trace.operation_ledger import OperationLedger as OperationLedger
from .trace.operation_ledger import OperationRow as OperationRow
from .trace.random_draws import Draw as Draw

# How is it seeded, and resumed?
from .checkpoint_seeds import add_seed_to as add_seed_to
from .checkpoint_seeds import check_seed_of as check_seed_of
from .data_order import item_generator as item_generator
from .data_order import loader_arguments as loader_arguments
from .data_order import split as split
from .generator_states import restore as restore
from .seeds import generator as generator
from .seeds import rank_seed as rank_seed
from .seeds import seed_everything as seed_everything
from .seeds import seeded as seeded
from .modes import mode_in_force as mode_in_force

# The same bits everywhere.
from .arithmetic.kernels.products import one_slice as one_slice
from .arithmetic.kernels.products import product as product
from .arithmetic.portable_mode import NotPortable as NotPortable
from .arithmetic.portable_mode import portable as portable
from .arithmetic.portable_mode import proved_arithmetic as proved_arithmetic
from .arithmetic.portable_operations import portable_operations as portable_operations

# What would other machines give?
from .arithmetic.perturbation import perturbed as perturbed

# What these are made of.
from .bit_equality import same_bits as same_bits
from .errors import BadInput as BadInput
from .errors import NotPossibleHere as NotPossibleHere
from .errors import SamebitsError as SamebitsError
from .generator_digests import generator_digests as generator_digests
from .tensor_digests import tensor_digest as tensor_digest
