"""The list of signers whom a reader believes: ``allowed_signers``, as OpenSSH reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path

from cellrepro.exchange.signed.keys import ED25519, OTHER_KINDS, PublicKey, small_text
from samebits.errors import BadInput

SIGNERS_VARIABLE = "CELLREPRO_ALLOWED_SIGNERS"
"""Environment variable with the path of the list of allowed signers."""
NAMESPACE = "cellrepro"
"""Must be among a signer's ``namespaces=``, if that option is given."""


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
        if OTHER_KINDS.fullmatch(kind):
            return None
        raise ValueError(f"{kind[:40]!r} is no kind of key")
    if "cert-authority" in options:
        return None
    return AllowedSigner(
        principals=principals.strip('"'),
        key=PublicKey.from_base64(encoded, comment=(comment or "").strip()),
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
