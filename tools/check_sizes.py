#!/usr/bin/env python3
"""No source file is longer than 600 lines; past 400, ask whether it is one
concept. Prints the files that are too long."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 600
FOLDERS = ["bench", "cmake", "examples", "fuzz", "include", "src", "tests",
           "tools"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".cmake"}


def main():
    found = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            lines = path.read_text(encoding="utf-8").count("\n")
            if lines > LIMIT:
                print(f"{path.relative_to(ROOT)}: {lines} lines, "
                      f"at most {LIMIT}: split it by concept")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
