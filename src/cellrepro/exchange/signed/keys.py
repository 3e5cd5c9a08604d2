"""Public keys of OpenSSH, and the list of signers whom a reader believes: ``allowed_signers``."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path

from cellrepro.errors import BadInput, no_such_file

ED25519 = "ssh-ed25519"
"""OpenSSH's name of the only kind of key that is supported here."""
SIGNERS_VARIABLE = "CELLREPRO_ALLOWED_SIGNERS"
"""Environment variable with the path of the list of allowed signers."""
NAMESPACE = "cellrepro"
"""Must be among a signer's ``namespaces=``, if that option is given."""
_OTHER_KINDS = re.compile(r"(sk-)?(ssh|ecdsa)-[\w@.-]+")
_MOST_BYTES = 2**20  # of a key file or a list of signers


# -- the wire format: a length in four bytes, then so many bytes -------------------------------


class WireReader:
    """Reads the fields of OpenSSH's binary format, one after the other."""

    def __init__(self, content: bytes):
        self._content = content
        self._position = 0

    def string(self) -> bytes:
        """The next string of bytes."""
        return self._next(self.number())

    def number(self) -> int:
        """The next 32-bit number."""
        (number,) = struct.unpack(">I", self._next(4))
        return int(number)

    def _next(self, n_bytes: int) -> bytes:
        end = self._position + n_bytes
        if end > len(self._content):
            raise ValueError(
                f"{n_bytes} bytes expected, {len(self._content) - self._position} there"
            )
        taken = self._content[self._position : end]
        self._position = end
        return taken

    @property
    def at_end(self) -> bool:
        """Whether nothing follows."""
        return self._position == len(self._content)


def wire_string(content: bytes) -> bytes:
    """Bytes in OpenSSH's binary format."""
    return struct.pack(">I", len(content)) + content


# -- public keys -------------------------------------------------------------------------------

_PUBLIC_KEY = "a public key of OpenSSH, as `ssh-keygen -t ed25519` makes one"


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 key of OpenSSH."""

    raw: bytes
    """Its 32 bytes."""
    comment: str = ""
    """The last word of its line, usually ``USER@HOST``."""

    @classmethod
    def from_blob(cls, blob: bytes, *, comment: str = "") -> PublicKey:
        """Parse the bytes that OpenSSH writes in base64."""
        reader = WireReader(blob)
        kind = reader.string()
        if kind != ED25519.encode():
            raise ValueError(f"a key of the kind {kind[:40]!r}")
        raw = reader.string()
        if len(raw) != 32 or not reader.at_end:
            raise ValueError("no 32 bytes of an Ed25519 key")
        return cls(raw, comment)

    @property
    def blob(self) -> bytes:
        """The bytes that OpenSSH writes in base64."""
        return wire_string(ED25519.encode()) + wire_string(self.raw)

    @property
    def fingerprint(self) -> str:
        """``SHA256:…``, as ``ssh-keygen -l`` prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """Its line in a ``.pub`` file, without the line feed."""
        return f"{ED25519} {base64.b64encode(self.blob).decode()} {self.comment}".rstrip()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the private key of this one made a signature over a message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


def read_public_key(path: Path) -> PublicKey:
    """Read a ``.pub`` file of OpenSSH."""
    kind, _, rest = small_text(path, expected=_PUBLIC_KEY).strip().partition(" ")
    encoded, _, comment = rest.partition(" ")
    if kind != ED25519:
        raise not_ed25519(path, kind if _OTHER_KINDS.fullmatch(kind) else None)
    try:
        return PublicKey.from_blob(_decoded(encoded), comment=comment.strip())
    except ValueError as error:
        raise BadInput(
            f"{path} is a damaged public key ({error}); make it anew with "
            f"`ssh-keygen -y -f {path.with_suffix('')}`"
        ) from error


def not_ed25519(path: Path, kind: str | None) -> BadInput:
    """The error for a file with a key of another kind, or without a key."""
    if kind is None:
        finding = f"{path} is no key of OpenSSH"
    elif kind.startswith("sk-"):
        finding = (
            f"{path} is a key of a security key ({kind}), whose signatures hold more than the "
            "message and are not plain Ed25519"
        )
    else:
        finding = f"{path} is a key of the kind {kind}"
    return BadInput(
        f"{finding}; expected an Ed25519 key: `ssh-keygen -t ed25519` makes one, and --sign takes "
        "its .pub"
    )


def small_text(path: Path, *, expected: str) -> str:
    """Read a text file of bounded size, such as a key."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise no_such_file(path, expected=expected) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error}); expected {expected}") from error
    if len(content) > _MOST_BYTES:
        raise BadInput(f"{path} is larger than {_MOST_BYTES} bytes; expected {expected}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text ({error}); expected {expected}") from error


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"no base64: {error}") from error


# -- the list of allowed signers -----------------------------------------------------------


@dataclass(frozen=True)
class AllowedSigner:
    """One line of a list of allowed signers: who holds a key, and for what."""

    principals: str
    """First word of the line: who holds the key, usually a mail address."""
    key: PublicKey
    namespaces: tuple[str, ...] = ()
    """OpenSSH's patterns of what the key may sign; empty for everything."""
    valid_after: datetime | None = None
    """No signature is believed before, by the clock of this machine."""
    valid_before: datetime | None = None
    """No signature is believed from then on, by the clock of this machine."""

    def why_not_now(self, now: datetime) -> str | None:
        """Why its signatures do not count at that time; None if they do."""
        if self.namespaces and not _matches(NAMESPACE, self.namespaces):
            return (
                f"the key may sign {', '.join(self.namespaces)} alone, by namespaces= of the "
                f"list of signers, and not {NAMESPACE}"
            )
        if self.valid_after is not None and now < self.valid_after:
            return f"the key is to be believed from {self.valid_after.isoformat()} on"
        if self.valid_before is not None and now >= self.valid_before:
            return f"the key was to be believed until {self.valid_before.isoformat()}"
        return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether OpenSSH's pattern list matches a name: ``*``, ``?``, and ``!`` for not."""
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    if any(fnmatchcase(name, pattern) for pattern in excluded):
        return False
    return any(fnmatchcase(name, pattern) for pattern in included)


def allowed_signers_path(path: str | Path | None = None) -> Path:
    """The path of the list of allowed signers, which need not exist."""
    given = path or os.environ.get(SIGNERS_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".ssh" / "allowed_signers"


def read_allowed_signers(path: str | Path | None = None) -> tuple[AllowedSigner, ...]:
    """Read the list of allowed signers, without keys of other kinds and certificate authorities.

    Empty if no list is named and the usual file does not exist.
    """
    is_named = path is not None or bool(os.environ.get(SIGNERS_VARIABLE))
    file = allowed_signers_path(path)
    if not is_named and not file.exists():
        return ()
    text = small_text(file, expected="a list of allowed signers, as ssh-keygen reads it")
    signers = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            signer = _signer(line.strip())
        except ValueError as error:
            raise BadInput(
                f"{file}, line {number}: {error}; expected an address and then the key, as in "
                "`ada@lab.example ssh-ed25519 AAAA…` (`man ssh-keygen`, ALLOWED SIGNERS)"
            ) from error
        if signer is not None:
            signers.append(signer)
    return tuple(signers)


_WORD = r'(?:"[^"]*"|[^\s"])+'  # with spaces inside quotes
_FIELDS = re.compile(rf"({_WORD})\s+(?:({_WORD})\s+)??([a-z][\w@.-]*)\s+([A-Za-z0-9+/=]+)(\s.*)?")
_OPTION = re.compile(r'([a-z-]+)(?:=(?:"([^"]*)"|([^",\s]+)))?(?:,|$)')


def _signer(line: str) -> AllowedSigner | None:
    """Parse one line; None for a key of another kind or of a certificate authority."""
    fields = _FIELDS.fullmatch(line)
    if fields is None:
        raise ValueError(f"{line[:60]!r} does not hold an address and a key")
    principals, options_text, kind, encoded, comment = fields.groups()
    options = _options(options_text or "")
    if kind != ED25519:
        if _OTHER_KINDS.fullmatch(kind):
            return None
        raise ValueError(f"{kind[:40]!r} is no kind of key")
    if "cert-authority" in options:
        return None
    return AllowedSigner(
        principals=principals.strip('"'),
        key=PublicKey.from_blob(_decoded(encoded), comment=(comment or "").strip()),
        namespaces=tuple(filter(None, options.get("namespaces", "").split(","))),
        valid_after=_moment(options.get("valid-after")),
        valid_before=_moment(options.get("valid-before")),
    )


def _options(text: str) -> Mapping[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None:
            raise ValueError(f"{text[position : position + 40]!r} is no option")
        name = option[1].lower()
        if name not in ("cert-authority", "namespaces", "valid-after", "valid-before"):
            raise ValueError(f"the option {name!r} is not known")
        if name in options:
            raise ValueError(f"the option {name!r} is given twice")
        options[name] = option[2] or option[3] or ""
        position = option.end()
    return options


def _moment(text: str | None) -> datetime | None:
    """Parse ``YYYYMMDD[HHMM[SS]]``, local time, or UTC with ``Z`` behind it."""
    if text is None:
        return None
    digits = text.removesuffix("Z")
    form = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}.get(len(digits))
    if form is None or not digits.isascii() or not digits.isdecimal():
        raise ValueError(f"{text!r} is no time; expected YYYYMMDD, YYYYMMDDHHMM[SS], or with Z")
    moment = datetime.strptime(digits, form)
    return moment.replace(tzinfo=timezone.utc) if text.endswith("Z") else moment.astimezone()
