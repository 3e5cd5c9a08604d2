"""Faults of what is stored: whole or absent, never overwritten, damage is noticed."""

from faults.by_name import breaks


@breaks(
    "cellrepro.store.committing:_share",
    "Every stored file has its digest in manifest and seal, those in folders too.",
    tests=["tests/store/test_store.py::test_keeps_a_repeat_whole_and_read_only"],
)
def masks_are_not_sealed(share):
    def fault(root, staged, manifest, files):
        share(root, staged, manifest, files)
        for name in [name for name in files if "/" in name]:
            del files[name]

    return fault


@breaks(
    "cellrepro.store.committing:_folder_of",
    "What is stored is never overwritten.",
    tests=["tests/store/test_store.py::test_never_overwrites_and_keeps_the_images_once"],
)
def a_stored_repeat_is_replaced(folder_of):
    def fault(root, key, manifest):
        from cellrepro.store.removal import remove_if_possible

        target = folder_of(root, key, manifest)
        remove_if_possible(target)
        return target

    return fault


@breaks(
    "cellrepro.store.whole_files:replace_by_link",
    "A file that was changed behind the store's back is never linked to.",
    tests=[
        "tests/store/test_store.py"
        "::test_equal_repeats_are_stored_once_and_a_tampered_twin_is_never_linked"
    ],
)
def a_changed_twin_spreads(replace_by_link):
    def fault(path, twin):
        path.unlink()
        path.hardlink_to(twin)
        return True

    return fault


@breaks(
    "cellrepro.store.store:note_once",
    "A run that another version stored is passed over; all others are listed.",
    tests=["tests/store/test_store.py::test_a_run_of_a_newer_version_is_passed_over"],
)
def one_newer_run_closes_the_store(say_once):
    def fault(text):
        raise OSError(text)

    return fault


@breaks(
    "cellrepro.store.unchanged:refuse_damaged",
    "A stored file that was changed is damage, and no difference between two runs.",
    tests=[
        "tests/store/test_store.py::test_masks_and_images_that_were_changed_afterwards_are_refused"
    ],
)
def damaged_files_are_judged(refuse_damaged):
    return lambda path, expected, *, reading=None: None


@breaks(
    "cellrepro.store.whole_files:Owner.may_be_alive",
    "What another machine works in is not removed, whatever this one makes of its lock.",
    tests=["tests/store/test_store.py::test_what_another_machine_works_in_is_not_swept"],
)
def work_of_another_machine_is_swept(may_be_alive):
    return lambda self, here: False


@breaks(
    "cellrepro.store.store_paths:inside",
    "A link in a store from elsewhere is not followed out of the store.",
    tests=["tests/store/test_store.py::test_a_link_out_of_the_store_is_refused"],
)
def links_lead_out_of_the_store(inside):
    return lambda folder, name: folder / name


@breaks(
    "cellrepro.store.checkpoints:refuse_changed",
    "A checkpoint that was changed since it was written is refused.",
    tests=[
        "tests/store/test_checkpoints.py"
        "::test_an_earlier_whole_one_is_taken_instead_of_a_damaged_one"
    ],
)
def a_changed_checkpoint_is_taken(refuse_changed):
    return lambda checkpoint: None


@breaks(
    "cellrepro.store.checkpoint_choice:refuse_other",
    "A training goes on from no checkpoint of another spec, seed or machine.",
    tests=["tests/store/test_checkpoints.py::test_a_checkpoint_of_another_training_is_refused"],
)
def another_training_goes_on(refuse_other):
    return lambda checkpoint, wanted: None


@breaks(
    "cellrepro.store.row_tables:Pieces.go_back",
    "A resumed training forgets what the ledger says of steps after its checkpoint.",
    tests=["tests/store/test_row_tables.py::test_going_back_to_the_end_of_a_piece"],
)
def a_resumed_ledger_keeps_later_rows(go_back):
    def fault(self, n_rows):
        self.n_rows = n_rows

    return fault


@breaks(
    "cellrepro.store.environment_record:MachineRecord.name",
    "Another version of PyTorch makes another machine, whose bits are not taken for the same.",
    tests=[
        "tests/store/test_machine_identity.py::test_a_machine_is_told_apart_by_what_can_change_bits"
    ],
)
def a_machine_forgets_its_libraries(name):
    def fault(self):
        return name.fget(self.model_copy(update={"versions": {}}))

    return property(fault)
