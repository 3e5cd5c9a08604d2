"""Run commands in one process, and note all that they do beside reading.

``python guarded.py ALLOWED < COMMANDS``: a JSON list of commands, each a list of words. Allowed is
to write below one folder, and to start the lab's own child. Prints a JSON list, for each command
its exit code, what it said, and what it did that is not allowed.
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

ALLOWED = os.path.realpath(sys.argv[-1])
_OWN_CHILD = "from cellrepro.process.child import serve; serve()"
_ONE_PATH = {"os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.utime", "os.chown"}
_TWO_PATHS = {"os.rename", "os.link", "os.symlink"}
_PROCESSES = {"os.exec", "os.posix_spawn", "os.system", "os.spawn", "os.startfile", "pty.spawn"}
_SOCKETS = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"}
_OF_LIBRARIES = ("/sbin/ldconfig", "-p")
"""What Python's ctypes starts when a library is imported that looks for another."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

did = []


def _is_allowed(path):
    if isinstance(path, int) or path is None:
        return True
    real = os.path.realpath(os.fsdecode(path))
    return real == ALLOWED or real.startswith(ALLOWED + os.sep) or real == os.devnull


def _watch(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITING and not _is_allowed(path):
            did.append(f"wrote {path!r}")
    elif event == "subprocess.Popen":
        _, words, _, environment = arguments
        is_own = any(_OWN_CHILD in str(word) for word in words)
        if not is_own and tuple(words) != _OF_LIBRARIES:
            did.append(f"started {words!r}")
        sent = {name for name, value in (environment or {}).items() if "PWNED" in str(value)}
        if sent:
            did.append(f"started a child with the sent {sorted(sent)}")
    elif event == "socket.bind" and arguments[1][1] == 0:
        pass  # to no port: a library asks on import whether there is IPv6
    elif event in _PROCESSES or event in _SOCKETS:
        did.append(f"{event} {arguments!r}"[:300])
    elif event in _ONE_PATH and not _is_allowed(arguments[0]):
        did.append(f"{event} {arguments[0]!r}")
    elif event in _TWO_PATHS and not _is_allowed(arguments[1]):
        did.append(f"{event} to {arguments[1]!r}")


def main():
    import matplotlib.font_manager  # noqa: F401  # whose cache a first import makes

    from cellrepro.cli import run

    answers = []
    sys.addaudithook(_watch)
    for command in json.load(sys.stdin):
        did.clear()
        answer = {"command": command, "code": None, "said": "", "traceback": ""}
        try:
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                answer["code"] = run(command)
            answer["said"] = said.getvalue()[-3000:]
        except Exception as error:  # which no user may meet
            answer["traceback"] = "".join(traceback.format_exception(error))
        answers.append(answer | {"did": sorted(set(did))})
    print(json.dumps(answers), file=sys.__stdout__)


if __name__ == "__main__":
    main()
