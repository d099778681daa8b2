#!/usr/bin/env python3
"""What a build is made of, as C++ source.

  tools/build_facts.py OUT COMPILER FLAGS

Writes OUT, if it would change, with
  - the commit, with "+" behind it when src/ or include/ differ from it; empty
    without git;
  - the execution code (contract E2): one digest of the git blob id of every
    source under src/ of the rooms up to level 5, tests left out, of the
    compiler and its flags. Blob ids are computed from the files as git would,
    so git is not needed;
  - compiler and flags.
"""

import hashlib
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
import check_layers  # noqa: E402

MAX_LEVEL = 5


def blob_id(path):
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def execution_sources():
    for room, level in sorted(check_layers.LEVELS.items()):
        if level > MAX_LEVEL:
            continue
        for path in check_layers.sources(f"src/{room}"):
            if not check_layers.is_test(path.name):
                yield path


def execution_code(compiler, flags):
    digest = hashlib.sha256()
    for path in execution_sources():
        name = path.relative_to(check_layers.ROOT).as_posix()
        digest.update(f"{blob_id(path)} {name}\n".encode())
    digest.update(f"{compiler}\n{flags}\n".encode())
    return digest.hexdigest()


def git(*arguments):
    return subprocess.run(["git", "-C", check_layers.ROOT, *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)


def commit():
    try:
        head = git("rev-parse", "--verify", "HEAD")
        if head.returncode != 0:
            return ""
        changed = git("diff", "--quiet", "HEAD", "--", "src", "include")
        return head.stdout.strip() + ("+" if changed.returncode else "")
    except OSError:
        return ""


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main():
    out, compiler, flags = sys.argv[1:]
    flags = " ".join(flags.split())
    text = f"""// Written by tools/build_facts.py.
#include "evidence/build_facts.h"

namespace signet::evidence {{

BuildFacts FactsOfThisBuild() {{
  return {{.commit = {quoted(commit())},
          .execution_code =
              {quoted(execution_code(compiler, flags))},
          .compiler = {quoted(compiler)},
          .flags = {quoted(flags)}}};
}}

}}  // namespace signet::evidence
"""
    path = pathlib.Path(out)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
