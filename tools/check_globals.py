#!/usr/bin/env python3
"""The library has no state outside its objects.

  tools/check_globals.py LIBRARY    prints each variable of static storage in
                                    the archive that can be written

Variables that cannot be written lie in read-only sections, or in those that
only the loader writes, .data.rel.ro. A constexpr variable whose type is deduced
from its value may yet be among the others (GCC 12): spell the type out.
"""

import re
import subprocess
import sys

# Each of ours has its reason.
ALLOWED = {
    # Ids that no process gives out twice.
    "signet::topology::(anonymous namespace)::NextEpoch()::next",
    "signet::store::(anonymous namespace)::NextGeneration()::next",
    # A library that is opened once, and never closed.
    "signet::backend::gpu::(anonymous namespace)::Nvml::Get()::nvml",
}
# What compilers make: nvcc's handles of kernels, guards of statics (which are
# listed themselves), pointers to what an exception is thrown with, the waiting
# of std::atomic, and what sanitizers and coverage add.
TOOLCHAIN = re.compile(
    r"__device_stub__|__cudaFatCubin|__fatbinwrap|^_ZGV|^DW\.ref\."
    r"|_ZZNSt8__detail18__waiter_pool_base"
    r"|asan|tsan|ubsan|sancov|__llvm|^\.L|___asan|__odr_asan")
WRITABLE = re.compile(r"\.(data|bss|tdata|tbss)(\.|$)")


def writable(library):
    listing = subprocess.run(["objdump", "-t", library], check=True,
                             capture_output=True, text=True).stdout
    for line in listing.splitlines():
        # value, seven flags, section, size, name: binutils' objdump(1).
        match = re.match(r"[0-9a-f]+ (.{7}) (\S+)\t[0-9a-f]+ +(.*)", line)
        if not match or "O" not in match[1]:
            continue
        section, name = match[2], match[3].removeprefix(".hidden ")
        if WRITABLE.match(section) and not section.startswith(".data.rel.ro"):
            yield name


def main():
    names = sorted({n for n in writable(sys.argv[1])
                    if not TOOLCHAIN.search(n)})
    plain = subprocess.run(["c++filt"], input="\n".join(names), check=True,
                           capture_output=True, text=True).stdout.splitlines()
    found = [name for name in plain if name and name not in ALLOWED]
    for name in found:
        print(f"{name}: the library has no global state "
              "(or a reason in tools/check_globals.py)")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
