"""Command lines, as a shell reads and as a user writes them."""

import re
import shlex
from collections.abc import Mapping, Sequence

_PLAIN = re.compile(r"[\w@%+=:,./\\-]+")


def shell_line(words: Sequence[str]) -> str:
    """Join words to a line for a shell."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Quote a word for every shell, Windows' among them, or for POSIX where no quotes suit both.

    >>> quoted("a_masks.tif"), quoted("my cells.tif")
    ('a_masks.tif', '"my cells.tif"')
    """
    if _PLAIN.fullmatch(word):
        return word
    return shlex.quote(word) if re.search(r'["$`!]', word) else f'"{word}"'


def with_variables(variables: Mapping[str, str], command: str, *, windows: bool) -> str:
    """A command with environment variables before it, as one writes it in a shell.

    >>> with_variables({"A": "1", "B": "x y"}, "python …", windows=False)
    "A=1 B='x y' python …"
    >>> with_variables({"A": "1", "B": "it's"}, "python …", windows=True)
    "$env:A='1'; $env:B='it''s'; python …"
    """
    if not windows:
        set_for_it = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        return " ".join([*set_for_it, command])
    doubled = {name: value.replace("'", "''") for name, value in variables.items()}
    return "; ".join([*(f"$env:{name}='{value}'" for name, value in doubled.items()), command])


def words_of(command: str, *, windows: bool) -> list[str]:
    r"""The words of a command line, as a shell divides them.

    >>> words_of("python 'my script.py' {image}", windows=False)
    ['python', 'my script.py', '{image}']
    >>> words_of(r'C:\py\python.exe "C:\my files\a.py" {image}', windows=True)
    ['C:\\py\\python.exe', 'C:\\my files\\a.py', '{image}']
    """
    divided = shlex.shlex(command, posix=True, punctuation_chars=False)
    divided.whitespace_split = True
    divided.commenters = ""
    if windows:
        divided.escape = ""
    return list(divided)
