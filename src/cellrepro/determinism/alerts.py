"""Which determinism alerts the installed PyTorch can raise, read from its files.

PyTorch has no list of them to ask for. Its page on ``torch.use_deterministic_algorithms`` lists
operations by hand; the alerts themselves are calls of ``at::Context::alertNotDeterministic`` in
its compiled libraries, each with a literal name. Both are read here, the libraries only where
they are 64-bit ELF for x86-64 (Linux); nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cellrepro.errors import NotPossibleHere

LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so")
"""Where alerts were found up to PyTorch 2.15; the second is absent from CPU builds."""

_SAYS = re.compile(
    "|".join(
        # Pasted text may be wrapped anywhere, within a word too.
        r"\s*".join(re.escape(letter) for letter in phrase if letter != " ")
        for phrase in (
            "does not have a deterministic implementation",
            "defaults to a non-deterministic algorithm",
            "uses CuBLAS and you have CUDA",
        )
    )
)


def before_alert(text: str) -> str | None:
    """What stands before PyTorch's words for an alert and ends with its name; else none.

    This alone decides whether a warning, an error, or a text that holds one is about determinism.
    """
    said = _SAYS.search(text)
    if said is None:
        return None
    if said[0].startswith("uses"):
        return "CuBLAS"
    return text[: said.start()].strip() or None


def alert_in(message: str) -> str | None:
    """The alert's name in a warning or error of PyTorch; none if it is about something else.

    Examples
    --------
    >>> alert_in("put_ does not have a deterministic implementation, but you set ...")
    'put_'
    >>> alert_in("a.py:3: UserWarning: put_ does not have a deterministic implementation")
    'put_'
    """
    before = before_alert(message)
    if before is None:
        return None
    name = before.rpartition(": ")[2]
    return name if re.fullmatch(r"\w+( \w+)*", name) else name.split()[-1]


@dataclass(frozen=True)
class Documented:
    """One operation of PyTorch's page on deterministic algorithms."""

    name: str
    """As the page writes it, such as ``torch.nn.AvgPool3d``."""
    kind: Literal["switched", "error"]
    """Whether the page says that it acts deterministically, or that it is an error."""
    devices: frozenset[str]
    """Of ``cpu``, ``cuda`` and ``mps``; empty where the page names none."""


@dataclass(frozen=True)
class Installed:
    """What was read of the installed PyTorch."""

    torch: str
    """Its version."""
    alerts: dict[str, tuple[str, ...]]
    """For every alert the library files that hold it, sorted."""
    documented: tuple[Documented, ...]
    not_read: tuple[str, ...]
    """What could not be read and why, one sentence each; empty if the lists are complete."""


def installed() -> Installed:
    """Read the page and the libraries of the installed PyTorch (about a second, 1 GB of files)."""
    import torch

    alerts: dict[str, set[str]] = {}
    not_read = []
    folder = Path(torch.__file__).parent / "lib"
    present = [folder / name for name in LIBRARIES if (folder / name).is_file()]
    if not present:
        not_read.append(f"{folder} holds none of {', '.join(LIBRARIES)}: no alerts were read")
    for path in present:
        try:
            found, n_unread = in_library(path)
        except NotPossibleHere as error:
            not_read.append(str(error))
            continue
        for alert in found:
            alerts.setdefault(alert, set()).add(path.name)
        if n_unread:
            not_read.append(
                f"{path} raises alerts in {n_unread} more places, but their names "
                "are not literals that could be followed"
            )
    documented: tuple[Documented, ...] = ()
    try:
        documented = in_documentation(torch.use_deterministic_algorithms.__doc__)
    except NotPossibleHere as error:
        not_read.append(str(error))
    return Installed(
        torch=torch.__version__,
        alerts={alert: tuple(sorted(files)) for alert, files in sorted(alerts.items())},
        documented=documented,
        not_read=tuple(not_read),
    )


# -- the page ------------------------------------------------------------------------------

_LISTS: dict[Literal["switched", "error"], str] = {
    "switched": r"operations will act\s+deterministically when ``mode=True``:",
    "error": r"operations will throw a\s+:class:`RuntimeError` when ``mode=True``:",
}


def in_documentation(text: str | None) -> tuple[Documented, ...]:
    """The operations that the docstring of ``torch.use_deterministic_algorithms`` lists.

    Parameters
    ----------
    text : str or None
        The docstring; none under ``python -OO``, which drops docstrings.

    Raises
    ------
    NotPossibleHere
        If one of its two lists is not there.
    """
    found = []
    for kind, header in _LISTS.items():
        start = re.search(header, text or "")
        items = []
        if start and text:
            # A list ends with the first line that is neither of an item nor empty.
            indent = None
            for line in text[start.end() :].splitlines():
                if not line.strip():
                    continue
                depth = len(line) - len(line.lstrip())
                if line.lstrip().startswith("* ") and indent in (None, depth):
                    indent = depth
                    items.append(line.strip()[2:])
                elif indent is not None and depth > indent:
                    items[-1] += " " + line.strip()
                else:
                    break
        if not items:
            raise NotPossibleHere(
                "the docstring of torch.use_deterministic_algorithms has no list of operations "
                f"after {header!r}; it has changed, or python -OO dropped it: read it and adapt "
                "cellrepro/control/alerts.py"
            )
        for item in items:
            devices = {name.lower() for name in re.findall(r"\b(CPU|CUDA|MPS)\b", item)}
            # What follows "when" or "with" are conditions, which name functions too.
            subject = re.split(r"\s(?:when|with)\s", item)[0]
            for name in re.findall(r":\w+:`([^`]+)`", subject):
                found.append(Documented(name, kind, frozenset(devices)))
    return tuple(found)


# -- a library -----------------------------------------------------------------------------

_SECTION = np.dtype(
    [
        *[(name, "<u4") for name in ("name", "type")],
        *[(name, "<u8") for name in ("flags", "address", "offset", "size")],
        *[(name, "<u4") for name in ("link", "info")],
        *[(name, "<u8") for name in ("align", "entry")],
    ]
)
_SYMBOL = np.dtype(
    [
        *[("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")],
        *[("address", "<u8"), ("size", "<u8")],
    ]
)
_RELOCATION = np.dtype([("address", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_PROGBITS, _RELA, _DYNSYM = 1, 4, 11
_EXECUTABLE = 4
_GLOB_DAT, _JUMP_SLOT = 6, 7
_ALERT_FUNCTION = rb"\0(_ZN2at7Context21alertNotDeterministic\w*)\0"
_SENTENCE = re.compile(rb"(?:\A|\0)([ -~]+ defaults to a non-deterministic algorithm)")
_CUBLAS = re.compile(rb"\b(uses CuBLAS and you have CUDA)\b")

_BEFORE = 1 << 14
"""Bytes before a call in which the address of its literal is looked for: compilers load it once
and keep it in a register."""
_CHUNK = 1 << 24


def in_library(path: str | Path) -> tuple[frozenset[str], int]:
    """The alerts that a shared library can raise, without loading it.

    Parameters
    ----------
    path : str or Path
        A 64-bit ELF file for x86-64 with its section headers.

    Returns
    -------
    alerts : frozenset of str
    n_unread : int
        Calls of the alert function whose name is not a literal that could be followed.

    Raises
    ------
    NotPossibleHere
        If the file is of another format or machine, is damaged, or cannot be read.
    """
    try:
        library = _Library(np.memmap(path, np.uint8, "r"))
        names = [library.literal(call) for call in library.calls()]
        sentences = library.sentences()
    except NotPossibleHere as error:
        raise NotPossibleHere(f"{path} is not read: {error}") from None
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise NotPossibleHere(f"{path} cannot be read as an ELF file: {error}") from error
    return frozenset({name for name in names if name} | sentences), names.count(None)


class _Library:
    """An ELF file: its bytes, its sections, and what the alert function is called by in it."""

    def __init__(self, data: np.ndarray) -> None:
        head = data[:64].tobytes()
        if head[:4] != b"\x7fELF":
            raise NotPossibleHere("it is not an ELF file (Linux), the only format known here")
        machine = int.from_bytes(head[18:20], "little")
        if head[4:6] != b"\2\1" or machine != 62:
            raise NotPossibleHere(
                f"it is an ELF file for machine {machine}; only x86-64 (62) of 64 bits is known"
            )
        self.data = data
        at, n = int.from_bytes(head[40:48], "little"), int.from_bytes(head[60:62], "little")
        self.sections = self._table(_SECTION, at, n * _SECTION.itemsize)
        names = self._bytes(self.sections[int.from_bytes(head[62:64], "little")])
        self.names = [names[int(at) :].split(b"\0", 1)[0] for at in self.sections["name"]]
        self.starts = self._function_starts()

    def _table(self, dtype: np.dtype, offset: int, size: int) -> np.ndarray:
        if offset + size > len(self.data):
            raise ValueError(f"it ends before byte {offset + size}")
        return np.frombuffer(self.data[offset : offset + size].tobytes(), dtype)

    def _bytes(self, section: Any) -> bytes:
        return self._table(np.dtype("u1"), int(section["offset"]), int(section["size"])).tobytes()

    def _of_type(self, kind: int) -> list[Any]:
        return [section for section in self.sections if section["type"] == kind]

    def _contents(self, *, executable: bool) -> list[Any]:
        return [
            section
            for section in self._of_type(_PROGBITS)
            if bool(section["flags"] & _EXECUTABLE) is executable
        ]

    def _function_starts(self) -> np.ndarray:
        """Addresses at which functions begin, sorted: int64, from the table for exceptions.

        Its format: Linux Standard Base, Exception Frames, ``.eh_frame_hdr``.
        """
        if b".eh_frame_hdr" not in self.names:
            return np.zeros(1, np.int64)
        section = self.sections[self.names.index(b".eh_frame_hdr")]
        table = self._bytes(section)
        if table[:1] + table[2:4] != b"\x01\x03\x3b":  # rows of offsets from the section's address
            raise ValueError("its table of functions has another form")
        n = int.from_bytes(table[8:12], "little")
        rows = np.frombuffer(table, "<i4", 2 * n, 12).reshape(n, 2)
        return np.sort(rows[:, 0].astype(np.int64) + int(section["address"]))

    def calls(self) -> list[tuple[int, int]]:
        """Every call of the alert function, as (offset in the file, address)."""
        functions, slots = self._functions()
        if slots:
            functions |= self._stubs(slots)
        found = []
        for section in self._contents(executable=True):
            for start in range(0, int(section["size"]), _CHUNK):
                found += self._calls_within(section, start, functions, slots)
        return found

    def _functions(self) -> tuple[set[int], set[int]]:
        """Where the alert function is defined, and the slots its address is loaded into."""
        functions, slots = set(), set()
        for table in self._of_type(_DYNSYM):
            names = self._bytes(self.sections[int(table["link"])])
            at = [found.start(1) for found in re.finditer(_ALERT_FUNCTION, names)]
            symbols = self._table(_SYMBOL, int(table["offset"]), int(table["size"]))
            wanted = np.flatnonzero(np.isin(symbols["name"], at))
            functions |= {int(symbols["address"][i]) for i in wanted if symbols["section"][i]}
            for section in self._of_type(_RELA):
                rows = self._table(_RELOCATION, int(section["offset"]), int(section["size"]))
                rows = rows[np.isin(rows["type"], [_GLOB_DAT, _JUMP_SLOT])]
                slots |= {int(at) for at in rows["address"][np.isin(rows["symbol"], wanted)]}
        return functions, slots

    def _stubs(self, slots: set[int]) -> set[int]:
        """The linker's stubs (``jmp *slot(%rip)``) that calls go through; 16 bytes each."""
        found = set()
        for section, name in zip(self.sections, self.names, strict=True):
            if name.startswith(b".plt") and section["type"] == _PROGBITS:
                code = np.frombuffer(self._bytes(section), np.uint8)
                at = np.flatnonzero((code[:-5] == 0xFF) & (code[1:-4] == 0x25))
                address = int(section["address"]) + at
                leads = np.isin(address + 6 + _signed(code, at + 2), list(slots))
                found |= {int(stub) - int(stub) % 8 for stub in address[leads]}
        return found

    def _calls_within(
        self, section: Any, start: int, functions: set[int], slots: set[int]
    ) -> list[tuple[int, int]]:
        size = min(_CHUNK + 5, int(section["size"]) - start)  # calls may straddle two chunks
        offset = int(section["offset"]) + start
        code = self._table(np.dtype("u1"), offset, size)
        address = int(section["address"]) + start
        direct = np.flatnonzero(code[: max(size - 4, 0)] == 0xE8)
        direct = direct[np.isin(address + direct + 5 + _signed(code, direct + 1), list(functions))]
        through = np.flatnonzero((code[: max(size - 5, 0)] == 0xFF) & (code[1 : size - 4] == 0x15))
        through = through[np.isin(address + through + 6 + _signed(code, through + 2), list(slots))]
        return [
            (offset + int(at), address + int(at))
            for at in sorted({*direct.tolist(), *through.tolist()})
            if at < _CHUNK
        ]

    def literal(self, call: tuple[int, int]) -> str | None:
        """The name handed to one call: a ``std::string_view`` built on the stack just before.

        Its length is stored as a constant, and next to it, 8 bytes on, a register into which the
        address of the characters was loaded relative to the instruction.
        """
        offset, address = call
        # What an earlier function has loaded and stored is none of this call's.
        before = int(np.searchsorted(self.starts, address, "right")) - 1
        function = int(self.starts[max(before, 0)])
        size = min(_BEFORE, offset, max(address - function, 0))
        window = self.data[offset - size : offset].tobytes()
        pointers = {slot: (at, register) for at, slot, register in _pointer_stores(window)}
        for slot, length in _length_stores(window):
            base, displacement = slot
            stored = pointers.get((base, displacement + 8))
            if stored is None:
                continue
            for at, target in _loads(window, *stored):
                text = self._text(address - size + at + target, length)
                if text is not None:
                    return text
        return None

    def _text(self, address: int, length: int) -> str | None:
        """A C string of that length at that address, if there is one."""
        for section in self._contents(executable=False):
            within = address - int(section["address"])
            if 0 <= within < int(section["size"]) - length:
                at = int(section["offset"]) + within
                text = self.data[at : at + length + 1].tobytes()
                if re.fullmatch(rb"[ -~]+\0", text):
                    return text[:-1].decode("ascii")
        return None

    def sentences(self) -> set[str]:
        """Alerts that are whole sentences of their own, such as those of the attentions."""
        found = set()
        for section, name in zip(self.sections, self.names, strict=True):
            if section["type"] == _PROGBITS and b"rodata" in name:
                text = self._bytes(section)
                for pattern in (_SENTENCE, _CUBLAS):
                    for match in pattern.finditer(text):
                        alert = alert_in(match[1].decode("ascii"))
                        found |= {alert} if alert else set()
        return found


def _signed(code: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The little-endian signed 32-bit numbers at those places, as int64."""
    parts = [code[at + k].astype(np.uint32) << np.uint32(8 * k) for k in range(4)]
    return np.bitwise_or.reduce(parts).astype(np.uint32).view(np.int32).astype(np.int64)


# An operand in memory: a base register with a displacement of 0, 1 or 4 bytes. Bases 4 and 5
# (%rsp, %rbp) have forms of their own. The middle three bits of the first byte are the register.
_NEAR = 256
"""Bytes before a call in which its string_view is built."""


def _operand(window: bytes, at: int, prefix: int) -> tuple[tuple[int, int], int] | None:
    """The slot (base, displacement) that a ModR/M byte names, and where the operand ends."""
    if at >= len(window):
        return None
    mode, base = window[at] >> 6, window[at] & 7
    end = at + 1
    if base == 4:
        if window[end : end + 1] != b"\x24":  # with an index register: no slot of a local variable
            return None
        end += 1
    if mode == 3 or (mode == 0 and base == 5):
        return None
    width = (0, 1, 4)[mode]
    if end + width > len(window):
        return None
    displacement = int.from_bytes(window[end : end + width], "little", signed=True)
    return (base | (prefix & 1) << 3, displacement), end + width


def _length_stores(window: bytes) -> list[tuple[tuple[int, int], int]]:
    """Constants stored as 64-bit words near the end (``movq $n, slot``), the last one first."""
    found = []
    for match in re.finditer(rb"(?=[\x48\x49]\xc7[\x00-\x07\x40-\x47\x80-\x87])", window[-_NEAR:]):
        at = max(len(window) - _NEAR, 0) + match.start()
        operand = _operand(window, at + 2, window[at])
        if operand and operand[1] + 4 <= len(window):
            slot, end = operand
            length = int.from_bytes(window[end : end + 4], "little")
            if 0 < length < 256:
                found.append((slot, length))
    return found[::-1]


def _pointer_stores(window: bytes) -> list[tuple[int, tuple[int, int], int]]:
    """Registers stored near the end (``mov %r, slot``): where, into what, which; in order."""
    found = []
    for match in re.finditer(rb"(?=[\x48\x49\x4c\x4d]\x89)", window[-_NEAR:]):
        at = max(len(window) - _NEAR, 0) + match.start()
        if operand := _operand(window, at + 2, window[at]):
            register = window[at + 2] >> 3 & 7 | (window[at] & 4) << 1
            found.append((at, operand[0], register))
    return found


def _loads(window: bytes, before: int, register: int) -> list[tuple[int, int]]:
    """Addresses loaded into a register (``lea n(%rip), %r``), the last one first.

    As (where the instruction ends, the signed distance from there).
    """
    prefix, operand = 0x48 | (register & 8) >> 1, (register & 7) << 3 | 5
    code = re.escape(bytes([prefix, 0x8D, operand]))
    found = [
        (match.end(), int.from_bytes(match[1], "little", signed=True))
        for match in re.finditer(code + rb"(.{4})", window[:before], re.DOTALL)
    ]
    return found[::-1]
