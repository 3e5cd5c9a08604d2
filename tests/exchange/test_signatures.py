"""Signatures: made by a real ssh-agent and by the key file, checked by openssl and others."""

import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from securesystemslib.dsse import Envelope as ReferenceEnvelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from cellrepro.exchange.signed.allowed_signers import SIGNERS_VARIABLE, read_allowed_signers
from cellrepro.exchange.signed.envelope import IN_TOTO, Envelope, Signature, read_envelope, signed
from cellrepro.exchange.signed.keys import read_public_key
from cellrepro.exchange.signed.signature_check import check_signature
from cellrepro.exchange.signed.signer import AGENT_VARIABLE, AgentSigner, find_signer
from cellrepro.exchange.statement import Attestation, Statement, read_payload
from cellrepro.exchange.strict_json import read_json
from samebits.errors import BadInput

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")

PASSPHRASE = "not empty"


def wire_string(content):
    """Bytes as OpenSSH writes them, with their length before them."""
    return len(content).to_bytes(4, "big") + content


def make_key(path, *, kind="ed25519", passphrase="", comment="ada@lab"):
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", path]
    subprocess.run(command, check=True)
    return path.with_name(f"{path.name}.pub")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return SimpleNamespace(
        folder=folder,
        ada=make_key(folder / "ada"),
        bob=make_key(folder / "bob.the.second", comment="bob@lab"),
        locked=make_key(folder / "locked", passphrase=PASSPHRASE),
        rsa=make_key(folder / "rsa", kind="rsa"),
        ecdsa=make_key(folder / "ecdsa", kind="ecdsa"),
    )


@pytest.fixture(autouse=True)
def no_agent(monkeypatch):
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    monkeypatch.delenv(SIGNERS_VARIABLE, raising=False)


@pytest.fixture
def agent(monkeypatch, tmp_path):
    """A real ssh-agent of this test alone; gives a function that adds keys."""
    started = subprocess.check_output(["ssh-agent", "-s"], text=True)
    address = re.search(r"SSH_AUTH_SOCK=([^;]+);", started)[1]
    process = int(re.search(r"SSH_AGENT_PID=(\d+);", started)[1])
    monkeypatch.setenv(AGENT_VARIABLE, address)
    ask = tmp_path / "ask"
    ask.write_text(f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    ask.chmod(0o700)

    def add(private, *options):
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        command = ["ssh-add", "-q", *options, private]
        subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)

    yield add
    os.kill(process, signal.SIGTERM)


def statement():
    return Statement(subject=(), predicate_type="https://example.org/v1", predicate={"µ": [1.5]})


def allowed(tmp_path, *lines):
    path = tmp_path / "allowed_signers"
    path.write_text("\n".join(lines) + "\n")
    return read_allowed_signers(path)


def line_of(public, *, principals="ada@lab", options=""):
    return f"{principals} {options} {public.read_text().strip()}"


# -- who signs -----------------------------------------------------------------------------


def test_agent_and_key_file_give_the_same_bytes(keys, agent):
    from_file = find_signer(keys.ada)
    agent(keys.folder / "ada")
    from_agent = find_signer(keys.ada)
    assert isinstance(from_agent, AgentSigner)
    assert not isinstance(from_file, AgentSigner)
    lines = {Attestation.of(statement(), signer=one).line() for one in (from_agent, from_file)}
    assert len(lines) == 1
    assert find_signer(keys.folder / "ada").sign(b"x") == from_file.sign(b"x")


def test_a_key_with_a_passphrase_signs_through_the_agent_alone(keys, agent):
    with pytest.raises(BadInput, match=r"has a passphrase.*does not hold it.*ssh-add .*locked"):
        find_signer(keys.locked)
    agent(keys.folder / "locked")
    signer = find_signer(keys.locked)
    assert signer.public_key.verifies(signer.sign(b"message"), b"message")
    only_public = keys.locked.with_name("elsewhere.pub")
    shutil.copy(keys.locked, only_public)
    assert find_signer(only_public).sign(b"message") == signer.sign(b"message")


def test_without_an_agent_the_message_says_so(keys, monkeypatch, tmp_path):
    with pytest.raises(BadInput, match=r"has a passphrase, and no ssh-agent runs .*ssh-add"):
        find_signer(keys.locked)
    monkeypatch.setenv(AGENT_VARIABLE, str(tmp_path / "nobody"))
    with pytest.raises(BadInput, match=r"has a passphrase, and the ssh-agent at .* not answer"):
        find_signer(keys.locked)
    assert find_signer(keys.ada).sign(b"x")  # a file that is there is enough


def test_keys_that_cannot_sign_are_refused_by_name(keys, tmp_path):
    security_key = tmp_path / "sk.pub"
    security_key.write_text("sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5 ada@lab\n")
    (tmp_path / "text.pub").write_text("hello\n")
    (tmp_path / "torn.pub").write_text(keys.ada.read_text()[:40] + "\n")
    (tmp_path / "torn").write_text("\n".join((keys.folder / "ada").read_text().splitlines()[::2]))
    (tmp_path / "alone.pub").write_text(keys.ada.read_text())
    (tmp_path / "pair.pub").write_text(keys.bob.read_text())
    shutil.copy(keys.folder / "ada", tmp_path / "pair")
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 20)
    (tmp_path / "huge.pub").write_bytes(b"a" * (2**20 + 1))
    for path, said in {
        keys.rsa: r"a key of the kind ssh-rsa; expected an Ed25519 key",
        keys.folder / "rsa": r"a key of the kind ssh-rsa",
        keys.ecdsa: r"of the kind ecdsa-sha2-nistp256",
        security_key: r"a key of a security key \(sk-ssh-ed25519@openssh.com\)",
        tmp_path / "text.pub": "is no key of OpenSSH",
        tmp_path / "torn.pub": "is a damaged public key",
        tmp_path / "torn": "is no key of OpenSSH, or damaged",
        tmp_path / "alone.pub": r"no private key for .*no ssh-agent runs.*no file .*alone;",
        tmp_path / "pair.pub": r"is the private key of SHA256:.*pair\.pub is SHA256:",
        tmp_path / "missing.pub": "no such file; expected a public key",
        tmp_path / "missing": "no such file",
        tmp_path / "binary": "is no text",
        tmp_path / "huge.pub": "is larger than",
        tmp_path: "cannot be read|no such file",
    }.items():
        with pytest.raises(BadInput, match=said):
            find_signer(path)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0\0\1\x05",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x05\x0c\0\0\0\xff",
        b"\0\0\0\x09\x0c\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
    ids=["closes", "refuses", "empty", "endless", "promises keys", "promises bytes"],
)
def test_an_agent_that_answers_nonsense_does_no_harm(keys, monkeypatch, tmp_path, answer):
    address = str(tmp_path / "agent")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(address)
        listener.listen()
        monkeypatch.setenv(AGENT_VARIABLE, address)
        thread = threading.Thread(target=_answer_once, args=(listener, answer))
        thread.start()
        with pytest.raises(
            BadInput, match=r"the ssh-agent (at .* does not answer|does not hold it)"
        ):
            find_signer(keys.locked)
        thread.join()


@pytest.mark.parametrize("refuses", [True, False], ids=["says no", "signs something else"])
def test_an_agent_that_holds_the_key_and_does_not_sign(keys, monkeypatch, tmp_path, refuses):
    """As where its user was asked (``ssh-add -c``) and said no."""
    public_key = read_public_key(keys.ada)
    listed = b"\x0c\0\0\0\1" + wire_string(public_key.blob) + wire_string(b"")
    signature = wire_string(b"ssh-ed25519") + wire_string(b"\7" * 64)
    signed_wrongly = b"\x0e" + wire_string(signature)
    second = b"\5" if refuses else signed_wrongly
    address = str(tmp_path / "agent")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(address)
        listener.listen()
        monkeypatch.setenv(AGENT_VARIABLE, address)
        answers = [wire_string(listed), wire_string(second)]
        thread = threading.Thread(target=_answer_in_turn, args=(listener, answers))
        thread.start()
        signer = find_signer(keys.ada)
        said = "did not sign with SHA256:" if refuses else "is no signature of SHA256:"
        with pytest.raises(BadInput, match=said):
            signer.sign(b"message")
        thread.join()


def _answer_in_turn(listener, answers):
    for answer in answers:
        _answer_once(listener, answer)


def _answer_once(listener, answer):
    connection, _ = listener.accept()
    with connection:
        connection.recv(100)
        connection.sendall(answer)


# -- as others see it ----------------------------------------------------------------------


def test_openssl_and_ssh_keygen_agree(keys, tmp_path):
    signer = find_signer(keys.ada)
    envelope = signed(b'{"a":1}', signer)
    told = subprocess.check_output(["ssh-keygen", "-l", "-f", keys.ada], text=True)
    assert told.split()[1] == signer.public_key.fingerprint == envelope.signatures[0].keyid
    assert signer.public_key.line == keys.ada.read_text().strip()
    der = bytes.fromhex("302a300506032b6570032100") + signer.public_key.raw
    (tmp_path / "key.der").write_bytes(der)
    (tmp_path / "message").write_bytes(b'DSSEv1 28 application/vnd.in-toto+json 7 {"a":1}')
    (tmp_path / "signature").write_bytes(envelope.signatures[0].signature)
    command = "pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in message -sigfile"
    verified = ["openssl", *command.split(), "signature"]
    assert subprocess.run(verified, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "message").write_bytes(b'DSSEv1 28 application/vnd.in-toto+json 7 {"a":2}')
    assert subprocess.run(verified, cwd=tmp_path, capture_output=True).returncode == 1


def test_securesystemslib_verifies_the_envelope(keys):
    signer = find_signer(keys.ada)
    attestation = Attestation.of(statement(), signer=signer)
    reference = ReferenceEnvelope.from_dict(read_json(attestation.line().encode(), where="x"))
    key = SSlibKey(
        signer.public_key.fingerprint,
        "ed25519",
        "ed25519",
        {"public": signer.public_key.raw.hex()},
    )
    assert reference.payload == statement().payload()
    assert [*reference.verify([key], 1)] == [signer.public_key.fingerprint]
    assert reference.pae() == attestation.envelope.signed_bytes


def test_what_securesystemslib_signs_is_good_here(keys, tmp_path):
    theirs = CryptoSigner.generate_ed25519()
    raw = bytes.fromhex(theirs.public_key.keyval["public"])
    blob = wire_string(b"ssh-ed25519") + wire_string(raw)
    reference = ReferenceEnvelope(statement().payload(), IN_TOTO, {})
    reference.sign(theirs)
    envelope = read_envelope(reference.to_dict(), where="x")
    attestation = read_payload(envelope.payload, where="x", envelope=envelope)
    known = f"eve@lab ssh-ed25519 {base64.b64encode(blob).decode()}"
    check = check_signature(attestation, allowed(tmp_path, known))
    assert (check.state, check.signer) == ("good", "eve@lab")


# -- the four states -----------------------------------------------------------------------


def test_the_four_states(keys, tmp_path):
    signer = find_signer(keys.ada)
    fingerprint = signer.public_key.fingerprint
    unsigned = Attestation.of(statement())
    made = Attestation.of(statement(), signer=signer)
    knows_ada = allowed(tmp_path, "# whom I know", "", line_of(keys.ada))
    knows_bob = allowed(tmp_path, line_of(keys.bob, principals="bob@lab"))
    assert str(check_signature(unsigned, knows_ada)) == "unsigned"
    assert str(check_signature(made, knows_ada)) == f"good signature of ada@lab ({fingerprint})"
    unknown = check_signature(made, knows_bob)
    assert str(unknown) == f"signed by an unknown key, {fingerprint}"
    changed = read_payload(b" " + made.payload, where="x")
    envelope = Envelope(changed.payload, IN_TOTO, made.envelope.signatures)
    forged = Attestation(changed.statement, changed.payload, envelope)
    assert check_signature(forged, knows_ada).state == "bad"
    assert check_signature(forged, knows_bob).state == "unknown"
    assert check_signature(forged, ()).state == "unknown"


def test_every_byte_of_message_and_signature_counts(keys, tmp_path):
    made = Attestation.of(statement(), signer=find_signer(keys.ada))
    known = allowed(tmp_path, line_of(keys.ada))
    signature = made.envelope.signatures[0]
    for bit in range(8 * 64):
        flipped = bytearray(signature.signature)
        flipped[bit // 8] ^= 1 << bit % 8
        wrong = Envelope(made.payload, IN_TOTO, (Signature(signature.keyid, bytes(flipped)),))
        assert (
            check_signature(Attestation(made.statement, made.payload, wrong), known).state == "bad"
        )
    for envelope in (
        Envelope(made.payload, "text/plain", (signature,)),
        Envelope(made.payload[:-1], IN_TOTO, (signature,)),
        Envelope(made.payload, IN_TOTO, (Signature(signature.keyid, b""),)),
        Envelope(made.payload, IN_TOTO, (Signature(signature.keyid, signature.signature * 2),)),
    ):
        attestation = Attestation(made.statement, envelope.payload, envelope)
        assert check_signature(attestation, known).state == "bad"


def test_the_name_of_the_key_is_a_hint_alone(keys, tmp_path):
    """Nothing protects ``keyid``: neither may it make a signature good, nor be shown as it is."""
    made = Attestation.of(statement(), signer=find_signer(keys.ada))
    right = made.envelope.signatures[0].signature
    known = allowed(tmp_path, line_of(keys.ada))
    for keyid in ("", "SHA256:" + "A" * 43, "\x1b[2Jada@lab"):
        envelope = Envelope(made.payload, IN_TOTO, (Signature(keyid, right),))
        other_name = Attestation(made.statement, made.payload, envelope)
        assert check_signature(other_name, known).state == "good"
        shown = str(check_signature(other_name, ()))
        assert shown.startswith("signed by an unknown key, ")
        assert "\x1b" not in shown


def test_two_sign_one_passport(keys, tmp_path):
    made = Attestation.of(statement(), signer=find_signer(keys.bob))
    both = made.signed_by(find_signer(keys.ada))
    assert both.signed_by(find_signer(keys.ada)) == both
    ada, bob = line_of(keys.ada), line_of(keys.bob, principals="bob@lab")
    assert {*check_signature(both, allowed(tmp_path, ada, bob)).signer.split(" and ")} == {
        "ada@lab",
        "bob@lab",
    }
    assert check_signature(both, allowed(tmp_path, ada)).signer == "ada@lab"
    bobs = made.envelope.signatures[0]
    swapped = Signature(find_signer(keys.ada).public_key.fingerprint, bobs.signature[::-1])
    envelope = Envelope(made.payload, IN_TOTO, (bobs, swapped))
    mixed = Attestation(made.statement, made.payload, envelope)
    assert check_signature(mixed, allowed(tmp_path, ada, bob)).state == "bad"


# -- allowed_signers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ("", "good"),
        ('namespaces="cellrepro"', "good"),
        ('namespaces="git,cell*"', "good"),
        ("namespaces=cellrepro", "good"),
        ('namespaces="git"', "unknown"),
        ('namespaces="*,!cellrepro"', "unknown"),
        ('valid-after="20200101",valid-before="20990101Z"', "good"),
        ('valid-before="20200101"', "unknown"),
        ('valid-after="209901011200"', "unknown"),
        ('valid-after="20990101120000Z"', "unknown"),
        ("cert-authority", "unknown"),
    ],
)
def test_options_of_a_signer_are_honoured(keys, tmp_path, options, state):
    made = Attestation.of(statement(), signer=find_signer(keys.ada))
    check = check_signature(made, allowed(tmp_path, line_of(keys.ada, options=options)))
    assert check.state == state
    if state == "unknown" and "cert" not in options:
        assert check.reason
        assert check.reason in str(check)


def test_a_limited_time_is_that_of_the_check(keys, tmp_path):
    made = Attestation.of(statement(), signer=find_signer(keys.ada))
    limited = allowed(tmp_path, line_of(keys.ada, options='valid-before="20300101Z"'))
    end = datetime(2030, 1, 1, tzinfo=UTC)
    assert check_signature(made, limited, now=end - timedelta(seconds=1)).state == "good"
    assert check_signature(made, limited, now=end).state == "unknown"


def test_principals_and_keys_as_ssh_keygen_reads_them(keys, tmp_path):
    lines = [
        "# a comment",
        f'"ada@lab,Ada L" {keys.ada.read_text().strip()}',
        f"*@lab,!bob@lab {keys.rsa.read_text().strip()}",
        f"old@lab {keys.ecdsa.read_text().strip()}",
        "key@lab sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5",
        f'bob@lab,*@example.org namespaces="file,cellrepro" {keys.bob.read_text().strip()}',
    ]
    signers = allowed(tmp_path, *lines)
    assert [each.principals for each in signers] == ["ada@lab,Ada L", "bob@lab,*@example.org"]
    assert signers[0].key == read_public_key(keys.ada)
    message = tmp_path / "message"
    message.write_text("x")
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", keys.bob.with_suffix(""), message]
    subprocess.run(sign, check=True, capture_output=True)
    found = subprocess.run(  # OpenSSH takes the same file
        [
            *("ssh-keygen", "-Y", "find-principals", "-s", f"{message}.sig"),
            *("-f", tmp_path / "allowed_signers"),
        ],
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == ["bob@lab", "*@example.org"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ada@lab", "does not hold an address and a key"),
        ("ssh-ed25519 KEY", "does not hold an address and a key"),
        ("ada@lab ssh-ed25519 !!!!", "does not hold an address and a key"),
        ("ada@lab ssh-ed25519 AAAA", "no 32 bytes of an Ed25519 key"),
        ("ada@lab ssh-ed25519 AAAAB", "no base64"),
        ("ada@lab ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAAQA=", "no 32 bytes of an Ed25519 key"),
        ('ada@lab magic="1" ssh-ed25519 KEY', "the option 'magic' is not known"),
        ('ada@lab valid-after="soon" ssh-ed25519 KEY', "'soon' is no time"),
        ('ada@lab valid-after="20260230" ssh-ed25519 KEY', "day is out of range"),
        ('ada@lab namespaces="a",namespaces="b" ssh-ed25519 KEY', "is given twice"),
        ("ada@lab rot13 AAAA", "'rot13' is no kind of key"),
    ],
)
def test_a_line_that_cannot_be_understood_is_refused(keys, tmp_path, line, said):
    encoded = keys.ada.read_text().split()[1]
    with pytest.raises(BadInput, match=said) as caught:
        allowed(tmp_path, "# first", line.replace("KEY", encoded))
    assert f"{tmp_path / 'allowed_signers'}, line 2: " in str(caught.value)


def test_where_the_list_is_looked_for(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert read_allowed_signers() == ()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "allowed_signers").write_text(line_of(keys.ada) + "\n")
    assert [each.principals for each in read_allowed_signers()] == ["ada@lab"]
    monkeypatch.setenv(SIGNERS_VARIABLE, str(tmp_path / "mine"))
    with pytest.raises(BadInput, match="mine: no such file; expected a list of allowed signers"):
        read_allowed_signers()
    with pytest.raises(BadInput, match="other: no such file"):
        read_allowed_signers(tmp_path / "other")


# -- envelopes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"payload": 3}, "payload is no text"),
        ({"payload": "e30"}, "payload is no base64"),
        ({"payload": "e3 0="}, "payload is no base64"),
        ({"payloadType": None}, "payloadType is no text"),
        ({"signatures": {}}, "signatures is no list"),
        ({"signatures": [{"sig": "", "keyid": ""}] * 65}, "signatures is no list of 64"),
        ({"signatures": ["x"]}, "no JSON object"),
        ({"signatures": [{"keyid": "x"}]}, "sig is no text"),
        ({"signatures": [{"keyid": 1, "sig": ""}]}, "keyid of a signature is no text"),
    ],
)
def test_a_damaged_envelope_is_refused(change, said):
    whole = {"payload": "e30=", "payloadType": IN_TOTO, "signatures": [{"sig": "AA=="}]}
    assert read_envelope(whole, where="x").signatures == (Signature("", b"\0"),)
    with pytest.raises(BadInput, match=f"x, line 1: a damaged DSSE envelope .*{said}"):
        read_envelope({**whole, **change}, where="x, line 1")


def test_base64_for_addresses_is_read_too():
    whole = {"payload": "_-8=", "payloadType": IN_TOTO, "signatures": []}
    assert read_envelope(whole, where="x").payload == b"\xff\xef"
