"""`python -m tests.distributed`: a table of all cases, magpy beside torch.compile.

    python -m tests.distributed [-k PART] [--magpy]

Exit status 1 where a case is not right in magpy.
"""

from __future__ import annotations

import argparse
import sys

from tests.distributed.cases import CASES
from tests.distributed.launch import run


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only the cases with this in their names")
    parser.add_argument("--magpy", action="store_true", help="without torch.compile")
    chosen = parser.parse_args()
    names = [n for n in CASES if chosen.k in n]
    modes = ["magpy"] if chosen.magpy else ["magpy", "torch"]
    print("| case | " + " | ".join(f"{m}: right, captures, hits, eager, in graphs" for m in modes))
    wrong = 0
    for name in names:
        rows = run([name], modes, True)[name]
        cells = []
        for mode in modes:
            found = [r.get(mode) for r in rows]
            if any(f is None for f in found):
                cells.append(
                    str(next((r.get("impossible") or r.get("lost") for r in rows), ""))[:90]
                )
                wrong += mode == "magpy" and any("lost" in r for r in rows)
                continue
            right = all(f["right"] for f in found)
            first = found[0]
            share = f"{first.get('inside', 0)} of {first.get('operations', 0)}"
            cells.append(
                f"{'yes' if right else 'NO'}, {first.get('captures')}, {first.get('hits')}, "
                f"{first.get('eager')}, {share}"
            )
            wrong += mode == "magpy" and not right
            if mode == "magpy":
                for reason in [*first.get("reasons", [])[-1:], first.get("error", "")[-600:]]:
                    cells[-1] += f" {reason}" if reason else ""
        print(f"| {name} | " + " | ".join(cells), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
