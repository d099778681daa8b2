#!/usr/bin/env python3
"""docs/contract.md ends with the mutants of every rule. Fails when

  that section is not the one that tests/mutants/*.mutants make,
  the lines that a mutant replaces are not in its source,
  a rule that the tables of the document name has no mutant.

--write mends the first."""

import re
import sys

from mutant_lists import ROOT, ListError, read_lists, stale

CONTRACT = ROOT / "docs" / "contract.md"
HEADING = "## Mutants of every rule\n"
ABOUT = """
Each takes a guard of its rule away; the test that then fails is among those of
the last column. Written by `tools/check_mutants.py --write` from
`tests/mutants/`.

"""
RULE = r"[A-Z]\d+[a-z]?"


def order(rule):
    letter, number, suffix = re.fullmatch(r"(.)(\d+)(.*)", rule).groups()
    return letter, int(number), suffix


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def killers(mutants):
    """The programs, each with its filters, that kill one of them."""
    filters = {}
    for mutant in mutants:
        if "does not compile" in mutant.flags:
            filters.setdefault("the compiler", {})
            continue
        program = mutant.program()
        program = "CTest" if program == "ctest" else f"`{program}`"
        for selection in mutant.selection().split(":"):
            filters.setdefault(program, {})[selection] = True
    return "; ".join(f"{program} {code(names)}".strip()
                     for program, names in filters.items())


def section(mutants):
    of_rule = {}
    for mutant in mutants:
        for rule in mutant.rule.split():
            of_rule.setdefault(rule, []).append(mutant)
    rows = [f"| {rule} | {code(m.mutant for m in of_rule[rule])} | "
            f"{killers(of_rule[rule])} |\n"
            for rule in sorted(of_rule, key=order)]
    return (HEADING + ABOUT + "| rule | mutants | killed by |\n|---|---|---|\n"
            + "".join(rows))


def named_rules(text):
    """Those in the first column of the tables of rules: W1-W5 names five."""
    rules = set()
    for cell in re.findall(rf"^\| ({RULE}[^|]*) \|", text, re.MULTILINE):
        for first, last in re.findall(rf"({RULE})(?:-({RULE}))?", cell):
            letter, low, _ = order(first)
            high = order(last or first)[1]
            rules |= {first} | {f"{letter}{n}" for n in range(low, high + 1)
                                if last}
    return rules


def problems(mutants, text):
    found = [f"{mutant.place}: {mutant.mutant}: {reason}"
             for mutant in mutants if (reason := stale(mutant, ROOT))]
    above, heading, below = text.partition(HEADING)
    if heading + below != section(mutants):
        found.append("docs/contract.md: not the mutants of tests/mutants/ "
                     "(tools/check_mutants.py --write mends it)")
    held = {rule for mutant in mutants for rule in mutant.rule.split()}
    found += [f"docs/contract.md: {rule} has no mutant in tests/mutants/"
              for rule in sorted(named_rules(above) - held, key=order)]
    return found


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = CONTRACT.read_text(encoding="utf-8")
    try:
        mutants = read_lists()
    except ListError as error:
        print(error)
        return 1
    if sys.argv[1:]:
        above = text.partition(HEADING)[0].rstrip("\n")
        text = f"{above}\n\n{section(mutants)}"
        CONTRACT.write_text(text, encoding="utf-8")
    found = problems(mutants, text)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
