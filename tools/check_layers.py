#!/usr/bin/env python3
"""Every include goes to a strictly lower room.

  tools/check_layers.py             prints each arrow that breaks a rule
  tools/check_layers.py --diagram   prints the rooms and their arrows

The rules, beside the levels below:
  - A public header includes only public headers.
  - `cli` includes only public headers and rooms of level 7.
  - What writes programs (`plan`, `step`, `lower`) sees no memory: it includes
    neither `backend` nor `collective` nor `store` (contract P7).
  - Inside `backend`, the folders cpu, gpu and null include the interface
    (files directly in backend/) and themselves, never each other.
  - `backend/kernel_bench.h` (of tests/keys) opens the kernels to tests and
    benchmarks; nothing else may include it or name its class.
  - tests/, bench/, fuzz/ and examples/ may include every room; a room's own
    tests obey the level of the room and may include tests/support.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

LEVELS = {
    "base": 0,
    "tensor": 1,
    "topology": 1,
    "text": 1,
    "model": 2,
    "backend": 2,
    "plan": 3,
    "collective": 3,
    "step": 4,
    "store": 4,
    "lower": 5,
    "exec": 5,
    "engine": 6,
    "serve": 7,
    "evidence": 7,
    "cli": 8,
}

# (file prefix, included prefix): why. `exec` may not include `lower`, nor the
# other way round: both are at level 5, and a program reaches the executor
# sealed, from whoever asked for it.
EXCEPTIONS = {}

# Rooms that are lower and yet out of reach (contract P7).
OUT_OF_REACH = {
    room: {"backend", "collective", "store"}
    for room in ("plan", "step", "lower")
}

# Public headers that are part of every room's language. The others are the
# API: `engine` implements it, and what lies above uses it.
SHARED_PUBLIC = {"error.h", "rejection_code.h", "version.h"}
API_LEVEL = LEVELS["engine"]
# Public headers a lower room may include, because it implements them.
IMPLEMENTED_BELOW = {"chat.h": ("text",)}

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
BACKENDS = {"cpu", "gpu", "null"}
# Declares the keys, and KernelBench as the second friend of each.
KEYS = "src/backend/launch_key.h"
OPENS_KERNELS = "only tests and benchmarks may open the kernels"
# Folders of other projects that are included with quotes.
EXTERNAL = {"hwy"}


def sources(folder):
    base = ROOT / folder
    if not base.is_dir():
        return []
    return sorted(p for p in base.rglob("*") if p.suffix in SUFFIXES)


def includes(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def is_test(name):
    return name.endswith("_test.cpp") or "_testing." in name


def may_open_kernels(file):
    return is_test(file) or file.startswith(("tests/", "bench/"))


def kernel_bench_lines(path):
    """Where the class is named that a key has for its friend."""
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if "KernelBench" in line:
            yield number


def excepted(file, target):
    return any(file.startswith(a) and target.startswith(b)
               for a, b in EXCEPTIONS)


def check_public(file, quoted, target):
    first = target.split("/")[0]
    if first in LEVELS or (quoted and first != "signet"):
        return "a public header includes only public headers"
    if first == "signet" and not (ROOT / "include" / target).is_file():
        return "no such public header"
    return None


def check_room(file, quoted, target):
    """Why `file` (src/ROOM/...) may not include `target`, or None."""
    room = file.split("/")[1]
    level = LEVELS[room]
    parts = target.split("/")
    first = parts[0]
    if first == "signet":
        name = "/".join(parts[1:])
        if not (ROOT / "include" / target).is_file():
            return "no such public header"
        if (name in SHARED_PUBLIC or level >= API_LEVEL
                or room in IMPLEMENTED_BELOW.get(name, ())):
            return None
        return f"{room} (level {level}) includes the API, which lies above it"
    if first in ("tests", "support"):
        return None if is_test(file) else "only tests include tests/support"
    if first not in LEVELS:
        if quoted and first not in EXTERNAL:
            return "not a full path from src/"
        return None
    if not (ROOT / "src" / target).is_file():
        return "no such file"
    if first == room:
        if room != "backend":
            return None
        mine, theirs = file.split("/")[2], parts[1]
        if mine in BACKENDS and theirs in BACKENDS and mine != theirs:
            return f"backend/{mine} includes backend/{theirs}"
        return None
    if room == "cli":
        if LEVELS[first] != 7:
            return "cli includes only signet/ and rooms of level 7"
        return None
    if first in OUT_OF_REACH.get(room, ()):
        return f"{room} writes programs and sees no memory, so not {first}"
    if LEVELS[first] >= level:
        return (f"{room} (level {level}) includes "
                f"{first} (level {LEVELS[first]})")
    return None


def problems():
    arrows = []
    found = []
    src = ROOT / "src"
    for folder in sorted(p.name for p in src.iterdir() if p.is_dir()):
        if folder not in LEVELS:
            found.append(f"src/{folder}: a room without a level")
    for path in (sources("src") + sources("include") + sources("tests")
                 + sources("examples") + sources("fuzz")):
        file = path.relative_to(ROOT).as_posix()
        if not may_open_kernels(file) and file != KEYS:
            found += [f"{file}:{n}: KernelBench: {OPENS_KERNELS}"
                      for n in kernel_bench_lines(path)]
        for number, quoted, target in includes(path):
            reason = None
            if target.endswith("backend/kernel_bench.h"):
                if not may_open_kernels(file):
                    reason = OPENS_KERNELS
            elif file.startswith("include/"):
                reason = check_public(file, quoted, target)
            elif file.startswith("src/") and file.split("/")[1] in LEVELS:
                reason = check_room(file, quoted, target)
                arrows.append((file.split("/")[1], target.split("/")[0]))
            if reason and not excepted(file, target):
                found.append(f'{file}:{number}: -> "{target}": {reason}')
    return found, arrows


def diagram(arrows):
    used = {}
    for room, target in arrows:
        if target != room and (target in LEVELS or target == "signet"):
            used.setdefault(room, set()).add(target)
    order = sorted(LEVELS, key=lambda r: (-LEVELS[r], r))
    for room in order:
        if not sources(f"src/{room}"):
            continue
        below = sorted(used.get(room, ()),
                       key=lambda r: (-LEVELS.get(r, 9), r))
        line = f"{LEVELS[room]}  {room:<10} -> {' '.join(below)}"
        print(line.rstrip(" ->"))


def main():
    found, arrows = problems()
    if sys.argv[1:] == ["--diagram"]:
        diagram(arrows)
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} includes break the layers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
