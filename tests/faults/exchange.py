"""Faults of what is exported, imported, verified, signed, repaired and computed again."""

from faults.by_name import breaks


@breaks(
    "cellrepro.exchange.plan_again:plan_again",
    "A program that a sender names is never run; only the reader can name one.",
    tests=["tests/exchange/test_plan_again.py::test_nothing_that_was_sent_is_executed"],
)
def a_program_that_was_sent_is_executed(plan_again):
    from dataclasses import replace

    def with_the_senders_program(recorded, request, store):
        command = request.command or recorded.spec.program or ()
        return plan_again(recorded, replace(request, command=command), store)

    return with_the_senders_program


@breaks(
    "cellrepro.exchange.passport_comparison:DigestComparison.verdict",
    "Runs whose weights differ are not called identical because their masks are equal.",
    tests=["tests/exchange/test_passport_comparison.py::test_the_step_by_digests"],
)
def other_weights_are_identical(verdict):
    from dataclasses import replace

    return property(lambda self: verdict.fget(replace(self, weights_equal=None)))


@breaks(
    "cellrepro.exchange.verification_result:Verification.verdict",
    "A run that found nothing is called vacuous, not identical, however whole its files are.",
    tests=["tests/exchange/test_verification.py::test_what_proves_nothing_is_vacuous"],
)
def nothing_found_is_identical(verdict):
    from cellrepro.comparison.verdicts import Verdict
    from samebits.results import derived

    def without_vacuous(self):
        found = verdict.fget(self)
        return Verdict.IDENTICAL if found == Verdict.VACUOUS else found

    return derived(without_vacuous)


@breaks(
    "cellrepro.exchange.passport_check:contradictions",
    "A passport that claims other results than its run has is found.",
    tests=[
        "tests/exchange/test_verification.py::test_a_passport_that_does_not_fit_its_run_is_found"
    ],
)
def a_forged_passport_fits(contradictions):
    return lambda passport, repeat, *, where: iter(())


@breaks(
    "cellrepro.exchange.signed.signature_check:_check_one",
    "A signature is good only if the key on the reader's list made it, whatever key it names.",
    tests=["tests/exchange/test_signatures.py::test_every_byte_of_message_and_signature_counts"],
)
def a_key_id_makes_a_signature_good(check_one):
    from cellrepro.exchange.signed.signature_check import SignatureCheck

    def by_its_name(signature, message, allowed, now):
        for signer in allowed:
            if signer.key.fingerprint == signature.keyid:
                return SignatureCheck("good", signature.keyid, signer.principals)
        return check_one(signature, message, allowed, now)

    return by_its_name


@breaks(
    "cellrepro.exchange.signed.allowed_signers:AllowedSigner.why_not_now",
    "A key whose time is over, or that may not sign passports, makes no signature good.",
    tests=["tests/exchange/test_signatures.py::test_options_of_a_signer_are_honoured"],
)
def an_expired_key_is_believed(why_not_now):
    return lambda self, now: None


@breaks(
    "cellrepro.exchange.archive.writing:_add",
    "A stored file that was damaged is not exported.",
    tests=["tests/exchange/test_export_import.py::test_damaged_runs_are_not_exported"],
)
def damaged_files_are_exported(add):
    import hashlib
    from dataclasses import replace

    def as_it_is(file, scratch_zip, done):
        digest = hashlib.sha256(b"".join(file.blocks())).hexdigest()
        add(replace(file, digest=digest), scratch_zip, done)

    return as_it_is


@breaks(
    "cellrepro.exchange.archive.file_checks:check_masks",
    "Imported masks have the labels of which their manifest speaks.",
    tests=["tests/exchange/test_file_checks.py::test_other_labels_are_refused"],
)
def other_labels_pass(check_masks):
    return lambda path, record: None


@breaks(
    "cellrepro.exchange.importing:_refuse_conflicts",
    "An import of another repeat under a stored name is refused, not silently passed over.",
    tests=[
        "tests/exchange/test_export_import.py::test_a_different_repeat_of_the_same_name_is_refused"
    ],
)
def a_conflicting_import_says_nothing(refuse_conflicts):
    return lambda path, store, repeats: None


@breaks(
    "cellrepro.exchange.store_check:_brought_back",
    "If two files were exchanged, repairing one does not destroy the content of the other.",
    tests=["tests/exchange/test_store_check.py::test_exchanged_files_are_exchanged_again"],
)
def exchanged_files_overwrite_each_other(brought_back):
    def one_by_one(lost, on_disk):
        return [repair for one in lost for repair in brought_back([one], on_disk)]

    return one_by_one


@breaks(
    "cellrepro.exchange.store_findings:_leftovers",
    "What a living process is working on is not told to be removed.",
    tests=["tests/exchange/test_store_check.py::test_what_stopped_work_left_is_named"],
)
def work_in_hand_is_called_left_over(leftovers):
    from cellrepro.exchange.folder_check import leftover

    def everything_staged(on_disk):
        root = on_disk.root
        staged = sorted((root / ".staging").iterdir()) if (root / ".staging").is_dir() else []
        return [leftover(entry, on_disk, "it is of work that was stopped") for entry in staged]

    return everything_staged


@breaks(
    "cellrepro.exchange.store_check:_stays_in",
    "A repair never writes anything outside of the store, through links either.",
    tests=["tests/exchange/test_hostile_inputs.py::test_stores"],
)
def repairs_follow_links_out_of_the_store(stays_in):
    return lambda root, lost: True
