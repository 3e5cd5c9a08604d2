"""List the determinism alerts of the installed PyTorch, and what cellrepro does not know of them.

Reads PyTorch's page on ``torch.use_deterministic_algorithms`` and, on Linux for x86-64, its
compiled libraries; nothing is executed. With LIBRARY, reads those files instead, such as the
libtorch_cuda.so of a wheel that is not installed. The exit code is 1 if something is missing from
src/cellrepro/control/nondeterministic.yaml, and 3 if not everything could be read, or no alert was.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cellrepro.determinism.alerts import Installed, in_library, installed
from cellrepro.determinism.known_operations import lookup, taken_from, unknown_alerts
from cellrepro.errors import NotPossibleHere

ENTRY = """\
- alerts: [{alert}]
  ops: []          # of torch.ops.aten
  devices: []      # cpu, cuda, mps
  phase:           # forward, backward, both
  kind:            # error, switched
  reason:
  remedy:
  source:
  version: {version}
  documented: []
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help="files to read instead")
    arguments = parser.parse_args()
    try:
        found = _read(arguments.libraries) if arguments.libraries else installed()
    except NotPossibleHere as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"PyTorch {found.torch}; the data was taken from {taken_from()['torch']}\n")
    for alert, files in found.alerts.items():
        entry = lookup(alert)
        print(f"{entry.kind if entry else 'MISSING':8}  {alert}  ({', '.join(files)})")
    print(f"\n{len(found.alerts)} alerts, {len(found.documented)} lines of the page")
    for line in found.not_read:
        print(f"not read: {line}")
    missing = unknown_alerts(found)
    for name in missing:
        print(f"missing: {name}")
    for alert in missing:
        if alert in found.alerts:
            print("\n" + ENTRY.format(alert=alert, version=found.torch.split("+")[0]))
    if not missing and (found.not_read or not found.alerts):
        print("incomplete: that nothing is missing among what was read proves nothing of the rest")
        return 3
    return 1 if missing else 0


def _read(libraries: list[str]) -> Installed:
    alerts: dict[str, tuple[str, ...]] = {}
    not_read = []
    for path in map(Path, libraries):
        names, n_unread = in_library(path)
        for alert in sorted(names):
            alerts[alert] = (*alerts.get(alert, ()), path.name)
        if n_unread:
            not_read.append(f"{n_unread} calls in {path}")
    return Installed("of these files", dict(sorted(alerts.items())), (), tuple(not_read))


if __name__ == "__main__":
    sys.exit(main())
