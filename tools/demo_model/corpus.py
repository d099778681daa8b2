# SPDX-License-Identifier: Apache-2.0
"""The books, how they are cleaned, cut into documents and split into training and validation text."""

import re
from dataclasses import dataclass, field
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"

# Consecutive paragraphs are grouped into blocks of about this many characters; every STRIDE-th block of
# a book, starting in the middle of a stride, is held out. Blocks are contiguous so that validation
# windows have real context.
BLOCK_CHARS = 9000
STRIDE = 25


@dataclass(frozen=True)
class Book:
    file: str
    title: str
    author: str
    weight: float  # how often a character of this book is drawn in training, relative to the others


# The King James Bible is 43 % of the characters: it is drawn less often, or everything would sound like
# it. The short children's books are drawn more often.
BOOKS = [
    Book("austen-emma.txt", "Emma", "Jane Austen", 1.0),
    Book("austen-persuasion.txt", "Persuasion", "Jane Austen", 1.0),
    Book("austen-sense.txt", "Sense and Sensibility", "Jane Austen", 1.0),
    Book("bible-kjv.txt", "The King James Version of the Bible", "various authors", 0.25),
    Book("bryant-stories.txt", "Stories to Tell to Children", "Sara Cone Bryant", 1.3),
    Book("burgess-busterbrown.txt", "The Adventures of Buster Bear", "Thornton W. Burgess", 1.3),
    Book("carroll-alice.txt", "Alice's Adventures in Wonderland", "Lewis Carroll", 1.5),
    Book("chesterton-ball.txt", "The Ball and the Cross", "G. K. Chesterton", 1.0),
    Book("chesterton-brown.txt", "The Wisdom of Father Brown", "G. K. Chesterton", 1.0),
    Book("chesterton-thursday.txt", "The Man Who Was Thursday", "G. K. Chesterton", 1.0),
    Book("edgeworth-parents.txt", "The Parent's Assistant", "Maria Edgeworth", 1.0),
    Book("melville-moby_dick.txt", "Moby-Dick; or, The Whale", "Herman Melville", 0.8),
]

# Where the publisher's own text begins, after the book.
TRAILER = re.compile(r"\n+(?:\*\*\* ?)?END OF (?:THE |THIS )?PROJECT GUTENBERG", re.IGNORECASE)

HEADING = re.compile(
    r"(?:CHAPTER|Chapter|VOLUME|BOOK|PART)\b.{0,70}"  # CHAPTER I. Down the Rabbit-Hole
    r"|(?:The .{0,30})?(?:Book|Epistle|Gospel|General Epistle|Acts|Revelation)\b.{0,70}[^.,;:!?]"  # The First Book of ...
    r"|[IVXL]+\. .{1,60}"  # IV. The Tale of a Detective
    r"|[A-Z][A-Z' ,.-]{6,70}"  # THE LITTLE YELLOW TULIP
)


@dataclass
class Split:
    book: Book
    train: list[str] = field(default_factory=list)  # documents
    valid: list[str] = field(default_factory=list)  # contiguous blocks


def read_book(folder: Path, book: Book) -> str:
    text = (folder / book.file).read_text(encoding="utf-8").replace("\r\n", "\n")
    trailer = TRAILER.search(text)
    if trailer:
        text = text[: trailer.start()]
    return text.strip()


def paragraphs(text: str) -> list[str]:
    return [p.strip() for p in text.split("\n\n") if p.strip()]


def is_heading(paragraph: str) -> bool:
    return len(paragraph) <= 80 and HEADING.fullmatch(paragraph) is not None


def documents(block: list[str]) -> list[str]:
    """Cuts at chapter headings, so that a document is a chapter or a story."""
    out: list[list[str]] = [[]]
    for paragraph in block:
        if is_heading(paragraph) and out[-1] and not is_heading(out[-1][-1]):
            out.append([])
        out[-1].append(paragraph)
    return ["\n\n".join(d) for d in out if d]


def split_book(folder: Path, book: Book) -> Split:
    blocks: list[list[str]] = [[]]
    size = 0
    for paragraph in paragraphs(read_book(folder, book)):
        if size >= BLOCK_CHARS:
            blocks.append([])
            size = 0
        blocks[-1].append(paragraph)
        size += len(paragraph) + 2

    stride = min(STRIDE, len(blocks))
    split = Split(book)
    stretch: list[str] = []
    for index, block in enumerate(blocks):
        if index % stride == stride // 2:
            split.valid.append("\n\n".join(block))
            split.train += documents(stretch)
            stretch = []
        else:
            stretch += block
    split.train += documents(stretch)
    return split


def load(folder: str | Path) -> list[Split]:
    folder = Path(folder)
    missing = [b.file for b in BOOKS if not (folder / b.file).is_file()]
    if missing:
        raise SystemExit(f"{folder}: these books are missing: {', '.join(missing)}")
    return [split_book(folder, b) for b in BOOKS]
