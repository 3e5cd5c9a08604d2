"""Passports and receipts: what they say, as validators of others read them, and from outside."""

import gc
import json
import time
import tracemalloc

import google.protobuf.json_format as protobuf_json
import pytest
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as ReferenceStatement

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import bundle_text, parse_bundle, read_bundle
from cellrepro.exchange.kept_passports import keep_passports, kept_bundle, passports_of
from cellrepro.exchange.mask_digests import files_digest
from cellrepro.exchange.passport_files import export_passports
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.receipt import (
    EnvironmentDifference,
    FirstDivergence,
    Receipt,
    receipt_statement,
)
from cellrepro.exchange.statement import Attestation, canonical_json
from cellrepro.images.folder import folder_digest, read_folder
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.manifest import DataRecord
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.heard_warning import HeardWarning
from stores import NOTHING, add_run, some_manifest, some_spec, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def run(store):
    return add_run(store, [(1.0, three())] * 2)


def replayed(passport, *, verdict=Verdict.IDENTICAL, machine="kyoto-01234567", **changes):
    usual = {
        "verdict": verdict,
        "passport": passport.digest,
        "run": passport.name,
        "machine": machine,
        "repeat": 0,
        "time": "2026-11-26T12:00:00Z",
        "packages": {"python": "3.12.1", "torch": "2.15.0"},
    }
    return Receipt(**{**usual, **changes})


def attested(receipt, passport, **options):
    return Attestation.of(receipt_statement(receipt, passport), **options)


def reference_check(payload):
    """As the libraries of in-toto read a statement, strictly: an unknown field is an error."""
    document = json.loads(payload)
    ReferenceStatement.copy_from_pb(
        protobuf_json.ParseDict(document, statement_pb2.Statement())
    ).validate()
    return document


# -- what a passport says ------------------------------------------------------------------


def test_it_says_what_the_store_holds(store, run):
    repeat = run.repeats[1]
    manifest = repeat.manifest
    passport = passport_of(repeat, run=run)
    assert passport.name == repeat.name
    assert (passport.key, passport.machine, passport.repeat) == (run.key, repeat.machine, 1)
    assert passport.spec == run.spec
    assert passport.weights == file_digest(repeat.weights)
    assert passport.masks.keys() == manifest.masks.keys()
    for image, digests in passport.masks.items():
        record = manifest.masks[image]
        assert digests.sha256 == file_digest(repeat.folder / digests.file)
        assert (digests.labels, digests.outlines) == (record.digest, record.canonical_digest)
        assert digests.n_objects == record.n_objects
    assert passport.all_masks.labels == manifest.masks_digest
    assert passport.all_masks.n_objects == manifest.n_objects
    assert passport.packages == manifest.versions
    document = manifest.model_dump(mode="json")
    assert passport.environment == {name: document[name] for name in ENVIRONMENT_FIELDS}
    assert passport.files["manifest.json"] == file_digest(repeat.folder / "manifest.json")
    assert passport.files["spec.json"] == file_digest(repeat.folder.parents[1] / "spec.json")
    assert passport.started == "2026-11-01T12:00:00Z"
    assert (passport.verdict, passport.n_repeats, passport.vacuous) == ("identical", 2, ())


def test_validators_of_in_toto_and_slsa_take_it(store, run):
    """The predicate is parsed by SLSA's own schema, where an unknown field is an error."""
    document = reference_check(passport_of(run.repeats[0], run=run).attestation.payload)
    provenance = protobuf_json.ParseDict(document["predicate"], provenance_pb2.Provenance())
    assert provenance.build_definition.build_type == "urn:cellrepro:buildtype:train:v1"
    assert provenance.run_details.metadata.invocation_id == run.repeats[0].name
    assert provenance.run_details.metadata.finished_on.seconds == 1793534408  # 12:00:08


def test_equal_repeats_differ_in_name_alone(store, run):
    """Nothing of the time or place of the export is in it."""
    first, second = (passport_of(repeat, run=run) for repeat in run.repeats)
    assert passport_of(run.repeats[0], run=store.run(run.key)).attestation == first.attestation
    assert first.digest != second.digest
    a, b = (json.loads(each.attestation.payload) for each in (first, second))
    assert a["subject"] == b["subject"]
    assert a["predicate"]["buildDefinition"] == b["predicate"]["buildDefinition"]


def test_verdict_is_over_the_repeats_of_its_machine(store):
    fast = add_run(store, [(1.0, three()), (2.0, three())], mode="fast")
    assert passport_of(fast.repeats[0], run=fast).verdict == "different"
    alone = passport_of(fast.repeats[0])
    assert (alone.verdict, alone.n_repeats) == (None, 1)
    empty = add_run(store, [(1.0, dict.fromkeys(three(), NOTHING))] * 2, seed=3)
    passport = passport_of(empty.repeats[0], run=empty)
    assert passport.verdict == "vacuous"
    assert passport.vacuous == ("no object was found in any of the 3 images",)


@pytest.mark.parametrize("task", ["segment", "wrap"])
def test_a_run_without_training_has_no_weights_of_its_own(store, task):
    fields = {"task": task, "model_digest": "f" * 64, "epochs": 0, "learning_rate": 0.0}
    run = add_run(store, [(None, three())], **fields)
    passport = passport_of(run.repeats[0], run=run)
    document = reference_check(passport.attestation.payload)
    definition = document["predicate"]["buildDefinition"]
    assert definition["buildType"] == f"urn:cellrepro:buildtype:{task}:v1"
    assert passport.spec == run.spec
    assert passport.weights is None
    digests = {each["name"]: each.get("digest") for each in definition["resolvedDependencies"]}
    if task == "segment":
        assert passport.starting_weights == "e" * 64
        assert digests["model-file"] == {"sha256": "f" * 64}
    else:
        assert passport.starting_weights is None
        assert digests["program"] == {"cellrepro_program": "f" * 64}
    assert [each.name for each in passport.results] == ["masks"]


def test_the_folder_of_images_is_named_file_by_file(store, small_data):
    """As ``sha256sum`` digests them, and as ``cellrepro`` itself does."""
    folder = read_folder(small_data)
    data = DataRecord(
        path="x",
        digest=folder.digest,
        files=folder.files,
        segmented="test",
        n_train=1,
        n_test=1,
        warnings=[],
    )
    manifest = {"data": data}
    run = add_run(store, [(1.0, three())], data_digest=folder.digest, manifest=manifest)
    passport = passport_of(run.repeats[0], run=run)
    assert passport.images == folder.files
    assert files_digest(folder.files) == folder_digest(small_data) == folder.digest


# -- under 1 MB ----------------------------------------------------------------------------


def huge_repeat(folder, *, n_images, n_warnings, name_length=0):
    """A manifest alone: nobody has so many masks to hand."""
    padding = "µ" * name_length
    masks = {f"{padding}img_{index:06}": ("b", "c", 3) for index in range(n_images)}
    files = {f"train/{name}{end}.tif": "a" * 64 for name in masks for end in ("", "_masks")}
    digest = files_digest(files)
    spec = some_spec(data_digest=digest)
    data = DataRecord(
        path="x",
        digest=digest,
        files=files,
        segmented="test",
        n_train=n_images,
        n_test=n_images,
        warnings=[],
    )
    warnings = [
        HeardWarning(
            message=f"warning {index} \x1b[31m" + "long " * 200,
            category="UserWarning",
            file="x.py",
            line=index,
            phase="train",
            count=1 + index,
        )
        for index in range(n_warnings)
    ]
    manifest = some_manifest(spec, masks=masks, data=data, warnings=warnings)
    manifest.files = {record.file: "d" * 64 for record in manifest.masks.values()}
    manifest.files |= {f"checkpoints/{index}.safetensors": "e" * 64 for index in range(2000)}
    place = folder / spec.key / manifest.machine.name / "0"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(manifest.model_dump_json())
    (place.parents[1] / "spec.json").write_text(spec.model_dump_json())
    return Repeat(place)


@pytest.mark.parametrize(
    ("n_images", "name_length", "names_masks", "names_images"),
    [
        (300, 0, True, True),
        (1500, 0, True, False),
        (11_000, 0, False, False),
        (900, 100, False, False),
    ],
)
def test_it_stays_below_one_megabyte(tmp_path, n_images, name_length, names_masks, names_images):
    repeat = huge_repeat(tmp_path, n_images=n_images, n_warnings=5000, name_length=name_length)
    passport = passport_of(repeat)
    payload = passport.attestation.payload
    assert len(payload) <= 700_000
    assert len(payload) * 4 / 3 + 1000 < 1_000_000
    reference_check(payload)
    assert bool(passport.masks) is names_masks
    assert bool(passport.images) is names_images
    together = passport.all_masks
    manifest = repeat.manifest
    assert (together.n_images, together.n_objects) == (n_images, 3 * n_images)
    assert together.labels == manifest.masks_digest
    assert together.files == files_digest(
        {name: "d" * 64 for name in manifest.files if "masks/" in name}
    )
    told = next(
        each
        for each in json.loads(payload)["predicate"]["runDetails"]["byproducts"]
        if each["name"] == "warnings"
    )["annotations"]
    assert (told["n_kinds"], told["count"]) == (5000, 5000 * 5001 // 2)
    assert len(told["kinds"]) == 100
    assert told["kinds"][0]["count"] == 5000
    assert told["kinds"][0]["message"].startswith("warning 4999  [31mlong")
    assert b"checkpoints/7" not in payload


# -- receipts ------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", Verdict)
def test_a_receipt_is_read_as_it_was_written(run, verdict):
    passport = passport_of(run.repeats[0], run=run)
    receipt = replayed(
        passport,
        verdict=verdict,
        weights_equal=False,
        n_images=3,
        n_equal_outlines=2,
        first_divergence=FirstDivergence("forward", step=7, op="aten::mm"),
        environment_differences={
            "threads": EnvironmentDifference(theirs=2, here=8),
            "versions.torch": EnvironmentDifference(theirs="2.6", here="2.15.0"),
            "numeric_class": EnvironmentDifference(theirs=None, here={"name": "0a"}),
        },
        reasons=("one sentence",),
    )
    made = attested(receipt, passport)
    document = reference_check(made.payload)
    names = {
        "identical": ["CELLREPRO_IDENTICAL"],
        "same-objects": ["CELLREPRO_SAME_OBJECTS"],
        "within-spread": ["CELLREPRO_WITHIN_SPREAD"],
        "different": [],
        "vacuous": [],
    }
    predicate = document["predicate"]
    assert document["predicateType"] == "https://in-toto.io/attestation/svr/v0.2"
    assert predicate["properties"] == names[verdict]
    assert predicate["verifier"]["policies"] == [
        {"name": passport.name, "digest": {"sha256": passport.digest}}
    ]
    bundle = parse_bundle(bundle_text([made, passport.attestation]).encode(), where="x")
    (read,) = bundle.receipts_of(bundle.passports[0])
    assert read.receipt == receipt
    assert read.attestation == made


def test_a_receipt_is_of_one_passport(run):
    first, second = (passport_of(repeat, run=run) for repeat in run.repeats)
    with pytest.raises(BadInput, match="the receipt is of the passport"):
        receipt_statement(replayed(first), second)
    text = bundle_text([second.attestation, attested(replayed(first), first)])
    bundle = parse_bundle(text.encode(), where="x")
    assert bundle.receipts_of(bundle.passports[0]) == ()
    assert len(bundle.receipts_without_passport) == 1


# -- from outside --------------------------------------------------------------------------


def changed(document, path, value):
    """A copy of a JSON document with one value changed, or removed where it is ``...``."""
    copy = json.loads(json.dumps(document))
    inner = copy
    *way, last = path.split(".")
    for name in way:
        inner = inner[int(name) if name.isdecimal() else name]
    last = int(last) if last.isdecimal() else last
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return canonical_json(copy)


_DEFINITION = "predicate.buildDefinition"
_DEPENDENCIES = f"{_DEFINITION}.resolvedDependencies"
_DETAILS = "predicate.runDetails"
_NAME = f"{_DETAILS}.metadata.invocationId"
CONTRADICTIONS = {
    "another seed": (f"{_DEFINITION}.externalParameters.seed", 5, "its spec has the key"),
    "another key": (_NAME, "0" * 16 + "/a-00000000/0", "has the key"),
    "another machine": (f"{_DETAILS}.builder.id", "urn:cellrepro:machine:x", "its builder is"),
    "another task": (f"{_DEFINITION}.buildType", "urn:cellrepro:buildtype:wrap:v1", "spec says"),
    "a later version": (f"{_DEFINITION}.buildType", "urn:cellrepro:buildtype:train:v2", "train:v2"),
    "other images": (
        f"{_DEFINITION}.resolvedDependencies.0.digest.cellrepro_files",
        "1" * 64,
        "images",
    ),
    "a hidden package": (
        f"{_DEFINITION}.resolvedDependencies.3.name",
        "numpy",
        "the address of torch",
    ),
    "a way out": ("subject.1.name", "../../x.tif", "leads out of the folder"),
    "an absolute name": ("subject.1.name", "/etc/passwd", "leads out of the folder"),
    "an image that leads out": ("subject.1.annotations.image", "../x", "leads out of the folder"),
    "a machine that leads out": (
        f"{_DETAILS}.metadata.invocationId",
        "0/../0",
        "KEY/MACHINE/REPEAT",
    ),
    "no digest": ("subject.0.digest.sha256", "abc", "no SHA-256"),
    "no labels": ("subject.1.digest.cellrepro_labels", ..., "labels"),
    "no result": (f"{_DETAILS}.byproducts.2.name", "x", "no resource named result"),
    "two weights": (
        "subject.1",
        {"name": "weights.safetensors", "digest": {}},
        "2 resources named",
    ),
    "a number as text": ("subject.1.annotations.n_objects", "2", "n_objects"),
    "a package twice": (
        f"{_DEPENDENCIES}.1",
        {"name": "torch", "uri": "pkg:pypi/torch@9"},
        "'torch' stands in it twice",
    ),
    "a file twice": (f"{_DETAILS}.byproducts.1.name", "manifest.json", "stands in it twice"),
    "masks in two ways": ("subject.1.name", "masks", "both each by itself and all together"),
    "an image twice": ("subject.2.annotations.image", "img_a", "masks twice"),
    "a verdict of its own": (f"{_DETAILS}.byproducts.2.annotations.verdict", "perfect", "verdict"),
    "no metadata": (f"{_DETAILS}.metadata", ..., "invocationId is 'None'"),
    "an unknown field of a spec": (f"{_DEFINITION}.externalParameters.magic", 1, "magic"),
    "a field without end": (f"{_DEFINITION}.externalParameters.{'m' * 9999}", 1, "mmm"),
    "a text for a number": ("subject.1.annotations.n_objects", "many", "n_objects"),
    "no spec": (f"{_DEFINITION}.externalParameters", [], "externalParameters"),
    "no builder": (_DETAILS, {}, "builder"),
    "commands for a terminal": ("subject.1.annotations.image", "\x1b[2J", "for commands"),
}


@pytest.mark.parametrize(("path", "value", "said"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_contradicts_itself_is_refused(run, path, value, said):
    document = json.loads(passport_of(run.repeats[0], run=run).attestation.payload)
    with pytest.raises(BadInput, match=said) as caught:
        parse_bundle(b"\n" + changed(document, path, value), where="some.intoto.jsonl")
    assert str(caught.value).startswith("some.intoto.jsonl")
    assert len(str(caught.value)) < 700  # whatever stands in it


RECEIPT_FAULTS = {
    "a better property": (
        "predicate.properties",
        ["CELLREPRO_IDENTICAL"],
        "its verdict is different",
    ),
    "a better verdict": ("predicate.cellrepro.verdict", "identical", "its verdict is identical"),
    "another passport": ("predicate.cellrepro.passport", "0" * 64, "not among its policies"),
    "a later version": ("predicate.cellrepro.version", 2, "its version is 2"),
    "a version without end": ("predicate.cellrepro.version", "9" * 9999, "its version is"),
    "no time": ("predicate.timeCreated", ..., "timeCreated"),
    "a step of text": ("predicate.cellrepro.first_divergence.step", "first", "step"),
    "a way out": ("predicate.cellrepro.run", "../../x", "its run is"),
    "no such time": ("predicate.cellrepro.time", "today", "its time is 'today'"),
    "another machine": ("predicate.cellrepro.machine", "basel-01234567", "are others than its own"),
}


@pytest.mark.parametrize(("path", "value", "said"), RECEIPT_FAULTS.values(), ids=RECEIPT_FAULTS)
def test_a_receipt_that_says_two_things_is_refused(run, path, value, said):
    passport = passport_of(run.repeats[0], run=run)
    receipt = replayed(
        passport, verdict=Verdict.DIFFERENT, first_divergence=FirstDivergence("loss", step=1)
    )
    document = json.loads(attested(receipt, passport).payload)
    with pytest.raises(BadInput, match=said) as caught:
        parse_bundle(changed(document, path, value), where="x")
    assert len(str(caught.value)) < 700


def test_fields_that_others_add_are_ignored(run):
    passport = passport_of(run.repeats[0], run=run)
    document = json.loads(passport.attestation.payload)
    for path in ("note", "predicate.note", f"{_DETAILS}.note", "subject.0.note"):
        text = changed(document, path, {"a": [1]})
        assert parse_bundle(text, where="x").passports[0].weights == passport.weights


def test_lines_of_others_are_passed_over_and_counted(run):
    passport = passport_of(run.repeats[0], run=run)
    others = [
        '{"payload": "e30=", "payloadType": "text/plain", "signatures": []}',
        '{"_type": "https://in-toto.io/Statement/v0.1"}',
        json.dumps({**json.loads(passport.attestation.payload), "predicateType": "https://x.org"}),
        "[]",
        "3",
    ]
    text = "\n".join([*others, "", passport.attestation.line(), ""])
    bundle = parse_bundle(text.encode(), where="x")
    assert (len(bundle.passports), bundle.n_passed_over) == (1, 5)
    assert str(bundle) == "passports of 1 repeat, 0 receipts and 5 lines of other kinds"
    with pytest.raises(BadInput, match="it holds no passport and no receipt"):
        parse_bundle("\n".join(others).encode(), where="x")


def test_damage_is_refused_within_bounds(tmp_path, run):
    line = passport_of(run.repeats[0], run=run).attestation.line()
    cut = line[: len(line) // 2]
    with pytest.raises(BadInput, match="line 2: no JSON"):
        parse_bundle(f"{line}\n{cut}".encode(), where="x")
    file = tmp_path / "huge.intoto.jsonl"
    with file.open("wb") as stream:
        stream.truncate(2**33)  # sparse
    gc.collect()
    tracemalloc.start()
    began = time.monotonic()
    with pytest.raises(BadInput, match="is larger than"):
        read_bundle(file)
    assert time.monotonic() - began < 5
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()
    with pytest.raises(BadInput, match="more than 10000 lines"):
        parse_bundle(b"{}\n" * 10_001, where="x")
    with pytest.raises(BadInput, match="no such file; expected a passport"):
        read_bundle(tmp_path / "missing.intoto.jsonl")
    with pytest.raises(BadInput, match="cannot be read"):
        read_bundle(tmp_path)


# -- kept in a store -----------------------------------------------------------------------


def exported(run, file, store):
    """The passports of a run in a new file, read back."""
    made = export_passports(run, file, store=store.root)
    bundle = read_bundle(file)
    assert made.passports == {one.name: one.digest for one in bundle.passports}
    assert made.receipts == len(bundle.receipts)
    return bundle


def test_receipts_stay_while_passports_are_exported_again(store, run, tmp_path):
    passport, _ = exported(run.key, tmp_path / "a.intoto.jsonl", store).passports
    basel = attested(replayed(passport, machine="basel-01234567"), passport)
    kyoto = attested(replayed(passport, machine="kyoto-01234567"), passport)
    for receipt in (basel, kyoto):
        text = bundle_text([receipt, passport.attestation])
        keep_passports(store, parse_bundle(text.encode(), where="x"))
    again = exported(f"{run.key}/0", tmp_path / "b.intoto.jsonl", store)
    receipts = again.receipts_of(*again.passports)
    assert [each.receipt.machine for each in receipts] == ["basel-01234567", "kyoto-01234567"]


def test_a_passport_is_made_anew_when_there_are_more_repeats(store, tmp_path):
    outcomes = [(1.0, three())] * 2
    run = add_run(store, outcomes)
    first, _ = exported(run.key, tmp_path / "a.intoto.jsonl", store).passports
    keep_passports(
        store,
        parse_bundle(
            bundle_text([first.attestation, attested(replayed(first), first)]).encode(), where="x"
        ),
    )
    more = add_run(store, [*outcomes, outcomes[0]])
    new = passports_of([more.repeats[0]], store=store)
    assert [passport.n_repeats for passport in new.passports] == [3, 2]
    assert new.receipts_of(new.passports[1])
    fewer = Store(tmp_path / "fewer")  # elsewhere, where only one repeat is
    add_run(fewer, outcomes[:1])
    keep_passports(fewer, new)
    there = passports_of(store.run(run.key).repeats[:1], store=fewer)
    assert there.passports[0].digest == new.passports[0].digest


def test_a_damaged_kept_file_is_not_replaced(store, run, tmp_path):
    export_passports(run.key, tmp_path / "a.intoto.jsonl", store=store.root)
    kept = store.root / "passports" / f"{run.repeats[0].name}.intoto.jsonl"
    kept.write_bytes(kept.read_bytes()[:-40])
    before = kept.read_bytes()
    with pytest.raises(BadInput, match="kept in the store itself"):
        export_passports(run.key, tmp_path / "b.intoto.jsonl", store=store.root)
    assert kept.read_bytes() == before
    assert not (tmp_path / "b.intoto.jsonl").exists()
    assert len(kept_bundle(store, run.repeats[1].name).passports) == 1


def test_a_store_that_cannot_be_written_is_no_hindrance(store, run, tmp_path, invoke):
    """As one of somebody else, who lets others read it."""
    (store.root / "passports").write_text("in the way")
    file = tmp_path / "a.intoto.jsonl"
    answer = invoke("export", run.key, file, "--store", store.root)
    assert answer.code == 0
    assert "passport      verdict    repeats  receipts" in answer.out
    assert answer.out.endswith("anyone could have written it: --sign KEY.pub says that you did\n")
    assert "note: the passport is not kept in the store, too: the store" in answer.out
    assert len(read_bundle(file).passports) == 2


# -- the command ---------------------------------------------------------------------------


def test_export_writes_the_same_bytes_twice(store, run, tmp_path, invoke):
    files = [tmp_path / f"{name}.intoto.jsonl" for name in "ab"]
    answers = [invoke("export", run.key, file, "--store", store.root, "--json") for file in files]
    assert [answer.code for answer in answers] == [0, 0]
    assert files[0].read_bytes() == files[1].read_bytes()
    document = answers[0].json
    assert document["digest"] == file_digest(files[0])
    assert document["runs"] == [repeat.name for repeat in run.repeats]
    assert document["passports"][run.repeats[0].name] == read_bundle(files[0]).passports[0].digest
    assert (document["receipts"], document["signed_by"]) == (0, None)


def test_export_names_runs_as_other_commands_do(store, run, tmp_path, invoke):
    other = add_run(store, [(2.0, three())], seed=9)
    machine = run.repeats[0].machine
    for number, (references, n_runs) in enumerate(
        [
            ([run.key[:5]], 2),
            ([f"{run.key}/1"], 1),
            ([f"{run.key}/{machine}"], 2),
            ([f"{run.key}/{machine[:3]}/0", run.key], 2),
            ([run.key, other.key], 3),
        ]
    ):
        file = tmp_path / f"{number}.intoto.jsonl"
        answer = invoke("export", *references, file, "--store", store.root, "--json")
        assert len(answer.json["runs"]) == n_runs, references


def test_export_refuses_and_writes_nothing(store, run, tmp_path, invoke, listing):
    taken = tmp_path / "taken.intoto.jsonl"
    taken.write_text("mine")
    before = listing(tmp_path)
    for arguments, said in [
        ([run.key, taken], "exists, and nothing is overwritten"),
        ([run.key, tmp_path / "no" / "a.intoto.jsonl"], "no is no folder"),
        ([run.key, tmp_path / "a.jsonl", "--passport"], "expected a name that ends with .intoto"),
        ([run.key, tmp_path / ".intoto.jsonl"], "expected a name that ends with .intoto"),
        (["ffff", tmp_path / "a.intoto.jsonl"], "and it names no run"),
        ([f"{run.key}/7", tmp_path / "a.intoto.jsonl"], "repeat 7 of"),
        ([f"{run.key}/nobody", tmp_path / "a.intoto.jsonl"], "names no repeat"),
        ([run.key, tmp_path / "a.intoto.jsonl", "--sign", taken], "is no key of OpenSSH"),
        ([run.key, tmp_path / "a.intoto.jsonl", "--sign", "no.pub"], "no.pub: no such file"),
        ([run.key, tmp_path / "a.txt"], "a.txt"),
    ]:
        answer = invoke("export", *arguments, "--store", store.root)
        assert answer.code == 2, arguments
        assert said in answer.err
        assert answer.err.count("\n") == 1
        assert listing(tmp_path) == before, arguments


def test_export_refuses_damaged_masks(store, run, tmp_path, invoke):
    masks = run.repeats[0].folder / "masks" / "img_a.tif"
    masks.chmod(0o644)
    content = bytearray(masks.read_bytes())
    content[-1] ^= 1
    masks.write_bytes(content)
    answer = invoke("export", run.key, tmp_path / "a.intoto.jsonl", "--store", store.root)
    assert answer.code == 2
    assert "img_a.tif" in answer.err
    assert not (tmp_path / "a.intoto.jsonl").exists()


def test_describe_says_whose_it_is(store, run, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("CELLREPRO_ALLOWED_SIGNERS", str(tmp_path / "nobody"))
    (tmp_path / "nobody").write_text("# nobody\n")
    file = tmp_path / "a.intoto.jsonl"
    passport = passport_of(run.repeats[0], run=run)
    other = passport_of(run.repeats[1], run=run)
    receipts = [attested(replayed(each), each) for each in (passport, other)]
    file.write_text(bundle_text([passport.attestation, *receipts]) + "\n[]\n")
    document = invoke("describe", file, "--json").json
    assert (document["kind"], document["other_receipts"], document["other_lines"]) == (
        "passport",
        1,
        1,
    )
    (described,) = document["passports"]
    assert (described["run"], described["digest"]) == (passport.name, passport.digest)
    assert (described["verdict"], described["signature"]["state"]) == ("identical", "unsigned")
    assert [each["machine"] for each in described["receipts"]] == ["kyoto-01234567"]
    lines = invoke("describe", file).out.splitlines()
    assert lines[0] == "passports of 1 repeat, 2 receipts and 1 line of other kinds"
    assert (
        "    replayed on kyoto-01234567, repeat 0: identical, 2026-11-26T12:00:00Z; unsigned"
        in lines
    )
    refused = invoke("describe", file, "--command")
    assert (refused.code, "--command would do nothing" in refused.err) == (2, True)
