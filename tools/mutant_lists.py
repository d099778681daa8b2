"""The mutants of tests/mutants/*.mutants. The form: tools/mutants."""

import fnmatch
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests" / "mutants"

FIELDS = {"mutant", "rule", "what", "file", "test"}
FLAGS = {"timeout ok", "does not compile"}


class ListError(Exception):
    pass


class Mutant:
    def __init__(self, place):
        self.place = place
        self.values = {}
        self.flags = set()
        self.before = []
        self.old = []
        self.new = []

    def __getattr__(self, name):
        if name in FIELDS:
            return self.values[name]
        raise AttributeError(name)

    def program(self):
        return self.test.split()[0]

    def selection(self):
        return self.test.split()[1]

    def matches(self, pattern):
        if not any(c in pattern for c in "*?"):
            pattern = f"*{pattern}*"
        texts = [self.mutant, self.file, self.test] + self.rule.split()
        return any(fnmatch.fnmatchcase(text, pattern) for text in texts)

    def apply(self, text):
        """The text with the mutant in it; ListError if it does not apply."""
        lines = text.split("\n")
        stripped = [line.strip() for line in lines]
        wanted = self.before + self.old
        places = [i for i in range(len(lines) - len(wanted) + 1)
                  if stripped[i:i + len(wanted)] == wanted]
        if not places:
            raise ListError("line not found")
        if len(places) > 1:
            raise ListError(f"{len(places)} places fit; add the line before, @")
        begin = places[0] + len(self.before)
        lines[begin:begin + len(self.old)] = self.new
        return "\n".join(lines)


def parse(path):
    name = path.relative_to(ROOT).as_posix()
    mutants = []
    current = None
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        place = f"{name}:{number}"
        if not line.strip():
            current = None
            continue
        if line.startswith("#"):
            continue
        if current is None:
            current = Mutant(place)
            mutants.append(current)
        if line in FLAGS:
            current.flags.add(line)
        elif line[0] in "@-+" and line[1:2] in ("", " "):
            if line[0] != "+" and current.new:
                raise ListError(f"{place}: {line[0]} after +")
            kind = {"@": current.before, "-": current.old, "+": current.new}
            kind[line[0]].append(line[2:] if line[0] == "+" else
                                 line[2:].strip())
        else:
            key, colon, value = line.partition(": ")
            if not colon or key not in FIELDS or key in current.values:
                raise ListError(f"{place}: unknown or repeated line: {line}")
            current.values[key] = value.strip()
    for mutant in mutants:
        missing = FIELDS - mutant.values.keys()
        if missing or not mutant.old:
            raise ListError(f"{mutant.place}: without "
                            f"{', '.join(sorted(missing)) or 'a - line'}")
        if mutant.new == [""]:
            mutant.new = []
        if len(mutant.test.split()) != 2:
            raise ListError(f"{mutant.place}: test is a program and a filter")
    return mutants


def read_lists():
    mutants = [m for path in sorted(LISTS.glob("*.mutants"))
               for m in parse(path)]
    seen = {}
    for mutant in mutants:
        if mutant.mutant in seen:
            raise ListError(f"{mutant.place}: {mutant.mutant} is also at "
                            f"{seen[mutant.mutant]}")
        seen[mutant.mutant] = mutant.place
    return mutants


def stale(mutant, root):
    """Why the mutant cannot be applied to the sources at root, or None."""
    try:
        text = (root / mutant.file).read_text("utf-8")
        if mutant.apply(text) == text:
            return "changes nothing"
    except OSError as error:
        return error.strerror
    except ListError as error:
        return str(error)
    return None
