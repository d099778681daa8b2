"""Seeded random strings over Unicode 14, weighted to what breaks tokenizers.

The generator is splitmix64, so the strings depend on the seed and on the
Unicode 14 tables alone.
"""

import unicodedata

assert unicodedata.unidata_version == "14.0.0", "run under Python 3.11"

# U+11935 U+11930 compose since Unicode 13, which utf8proc 2.8 does not know.
EXCLUDED = {0x11935, 0x11930}
LONGEST = 24  # code points, added tokens not counted

SPACES = [0x20, 0x20, 0x20, 0x20, 0x09, 0x0A, 0x0A, 0x0D, 0x0B, 0x0C, 0x85,
          0xA0, 0x1680, 0x2003, 0x2009, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE",
                "'Ll", "'\u017f", "\u2019s", "'x", "''s"]
BROKEN_TOKENS = ["<|im_", "<|im_start|", "<think", "</think >", "<|", "|>",
                 "<tool_call", "im_end|>", "<<think>"]
EMOJI = ["\U0001F469\u200D\U0001F4BB", "\U0001F468\u200D\U0001F469\u200D"
         "\U0001F467", "\u2764\uFE0F", "\U0001F44D\U0001F3FD", "1\uFE0F\u20E3",
         "\U0001F1EE\U0001F1F9", "\U0001F3F4\u200D\u2620\uFE0F"]
# Indic and other scripts with combining vowel signs.
INDIC = [(0x0900, 0x0DFF), (0x0E00, 0x0EFF), (0x0F00, 0x0FFF),
         (0x1000, 0x109F), (0x1780, 0x17FF), (0x1B00, 0x1B7F),
         (0x11000, 0x1124F)]


class Random:
  """splitmix64."""

  def __init__(self, seed):
    self.state = seed

  def below(self, count):
    mask = (1 << 64) - 1
    self.state = (self.state + 0x9E3779B97F4A7C15) & mask
    x = self.state
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) % count

  def choice(self, items):
    return items[self.below(len(items))]


def assigned():
  """Code points with a character in Unicode 14: no Cn, Cs, Co; no NUL."""
  return [c for c in range(1, 0x110000)
          if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")
          and c not in EXCLUDED]


class Generator:
  """`skip` holds code points that must not occur."""

  def __init__(self, seed, added_tokens, skip=frozenset()):
    self.random = Random(seed)
    points = [c for c in assigned() if c not in skip]
    category = {c: unicodedata.category(chr(c)) for c in points}
    within = lambda ranges: [
        c for c in points if any(a <= c <= b for a, b in ranges)]
    self.any = points
    self.ascii_letters = within([(0x41, 0x5A), (0x61, 0x7A)])
    self.latin = [c for c in within([(0xC0, 0x24F), (0x1E00, 0x1EFF)])]
    self.cased = [c for c in within([(0x370, 0x58F), (0x10A0, 0x10FF),
                                     (0x1F00, 0x1FFF)])]
    self.punctuation = [c for c in points if category[c][0] in "PS"]
    self.ascii_punctuation = [c for c in self.punctuation if c < 0x80]
    self.marks = [c for c in points if category[c][0] == "M"]
    self.stacking = [c for c in points if unicodedata.combining(chr(c))]
    self.digits = [c for c in points if category[c][0] == "N"]
    self.east_asian = within([(0x3040, 0x30FF), (0x4E00, 0x9FFF),
                              (0x3400, 0x4DBF), (0xF900, 0xFAFF),
                              (0x20000, 0x2A6DF)])
    self.common_han = within([(0x4E00, 0x6FFF)])
    self.hangul = within([(0xAC00, 0xD7A3), (0x1100, 0x11FF)])
    self.indic = within(INDIC)
    self.semitic = within([(0x0590, 0x06FF)])
    self.emoji = within([(0x1F300, 0x1FAFF), (0x2600, 0x27BF)])
    self.decomposable = [
        c for c in points if unicodedata.normalize("NFD", chr(c)) != chr(c)]
    self.added_tokens = added_tokens
    self.pieces = (
        [self._word] * 6 + [self._spaces] * 6 + [self._marked] * 4 +
        [self._decomposed] * 3 + [self._digits] * 4 +
        [self._of("east_asian", 4)] * 2 + [self._of("common_han", 4)] * 2 +
        [self._of("hangul", 4)] * 2 + [self._of("indic", 6)] * 4 +
        [self._of("semitic", 5)] * 2 + [self._of("cased", 5)] * 2 +
        [self._of("latin", 4)] * 2 + [self._of("punctuation", 2)] * 2 +
        [self._of("ascii_punctuation", 3)] * 3 + [self._of("any", 2)] * 3 +
        [self._emoji] * 3 + [lambda: self.random.choice(CONTRACTIONS)] * 2 +
        [lambda: self.random.choice(self.added_tokens)] * 2 +
        [lambda: self.random.choice(BROKEN_TOKENS)])

  def string(self):
    pieces, length = 1 + self.random.below(6), 0
    text = ""
    for _ in range(pieces):
      piece = self.random.choice(self.pieces)()
      length += 0 if piece in self.added_tokens else len(piece)
      if length > LONGEST:
        break
      text += piece
    return text or "a"

  def _characters(self, pool, count):
    return "".join(chr(self.random.choice(pool)) for _ in range(count))

  def _of(self, name, most):
    pool = getattr(self, name)
    return lambda: self._characters(pool, 1 + self.random.below(most))

  def _word(self):
    word = self._characters(self.ascii_letters, 1 + self.random.below(6))
    return word if self.random.below(3) else word.lower()

  def _spaces(self):
    return self._characters(SPACES, 1 + self.random.below(3))

  def _digits(self):
    pool = self.digits if self.random.below(3) == 0 else range(0x30, 0x3A)
    return self._characters(list(pool), 1 + self.random.below(4))

  def _marked(self):
    """A base (or none) and marks in any order, so that NFC must sort them."""
    base = self._characters(self.ascii_letters, self.random.below(2))
    pool = self.marks if self.random.below(2) else self.stacking
    return base + self._characters(pool, 1 + self.random.below(3))

  def _decomposed(self):
    text = self._characters(self.decomposable, 1 + self.random.below(3))
    return unicodedata.normalize("NFD", text)

  def _emoji(self):
    if self.random.below(2):
      return self.random.choice(EMOJI)
    return self._characters(self.emoji, 1 + self.random.below(2))
