"""What the tests of `samebits` share; without cellrepro they are run with --confcutdir here."""

from surroundings import generators_free, nothing_left_behind, one_thread  # noqa: F401
