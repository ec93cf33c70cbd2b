"""The rules of tidy.py about sentences: what they look for in the lines of one file."""
import re
from typing import Iterable, Iterator, List, Tuple

STIFF_WORDS = re.compile(r"\banew\b|\bbesides\b|\bnot this alone\b|\bbut for\b|\bparted by\b|\bfor want of\b|\bof no matter\b", re.I)
# Sentences that begin with what belongs behind the subject: "Of a job without ...", "Who names layers ...", "That the shape is
# whole". At the start of a comment, line, list item, cell or message, or behind a full stop, colon or semicolon. Questions may.
STIFF_START = re.compile(r"""(?:(?://|\#|^\s*(?:[-*|]|\d+\.)|[|]|\*\*|\"|^|[.;:][)"`]?\ )\s*)
                             (Of|Whoever|Whom|Who|That\ (?:the|an?|it|they|all|every|each|no))\ (?![^.;"]*\?)""", re.X)
# "Should the answer be forgotten: UNAVAILABLE" instead of "If ...". Questions may.
INVERTED = re.compile(r"(?:(?://|#|^|[.;:])\s+)Should (?:the|that|this|it|they|an?|any|one|no)\b(?![^.;\"]*\?)")
# "..., for the request has an answer": "because". Not "for a reason that is ...": the verb follows the noun.
FOR_BECAUSE = re.compile(r"[,;:] for (?:(?:the|an?|this|that|its|their|no|each|every) \w+|it|they) (?:is|are|was|were|has|had|does|do) ")
# A comment that is no more than the end of a sentence whose beginning the reader must guess: "Without c."
FRAGMENT = re.compile(r"\s*// (Without|With|For|In|On|Of|By|To|From|At|As|Only|Between|Beside|Before|After|During|Until) "
                      r"[^.,;:()]{1,24}\.$")

MIN_TORN = 20
NEW_BLOCK = re.compile(r"\s*([-*+] |\d+[.)] |[|#<>]|```|\[[^\]]+\]:|$)")
SHORT_LITERAL = re.compile(r'\s*"[A-Za-z\' ]{1,%d}"' % MIN_TORN)


def stiff(lines: List[str], page: bool) -> Iterator[Tuple[int, str]]:
    """Stiff words and inverted sentences; `page`: of a Markdown file, whose headings may be questions."""
    for number, line in enumerate(lines, 1):
        for match in STIFF_WORDS.finditer(line):
            yield number, f"say '{match.group(0)}' in plainer words"
        if "Should " in line and INVERTED.search(line):
            yield number, "say 'If ...', not 'Should ...'"
        if " for " in line and FOR_BECAUSE.search(line):
            yield number, "say 'because', not 'for'"
        start = None if page and line.startswith("#") else STIFF_START.search(line)
        if start:
            yield number, f"begin with the subject, not with '{start.group(1)}'"


def fragments(lines: List[str]) -> Iterator[Tuple[int, str]]:
    """Lone comments in C++ that are no sentence and name nothing."""
    for number, line in enumerate(lines, 1):
        beside = lines[max(number - 2, 0):number - 1] + lines[number:number + 1]
        if FRAGMENT.match(line) and not any(other.lstrip().startswith("//") for other in beside):
            yield number, "a comment is a sentence, or names what it explains"


COMMENT_LINE = re.compile(r"(\s*)// (\S.*)$")
COMMENT_COLUMNS = 100
COMMENT_GAP = 8  # columns that whoever wraps by hand may leave


def torn_paragraphs(lines: Iterable[Tuple[int, str]]) -> Iterator[Tuple[int, str]]:
    """Short lines inside paragraphs of a Markdown file; `lines`: those outside code fences, with their numbers."""
    lines = list(lines)
    for (number, line), (after, following) in zip(lines, lines[1:]):
        short = line.strip() and len(line) < MIN_TORN and not re.match(r"    |\s*[|#<>]", line)
        if short and after == number + 1 and not NEW_BLOCK.match(following):
            yield number, "join it with the next line"


def torn_comments(lines: List[str]) -> Iterator[Tuple[int, str]]:
    """Lines inside a sentence of a comment in C++ that end well before the limit, as a formatter leaves them when it wraps a longer one."""
    formatted = True
    for number, (line, following) in enumerate(zip(lines, lines[1:]), 1):
        if "// clang-format o" in line:
            formatted = line.rstrip().endswith("on")
        comment, next_comment = COMMENT_LINE.match(line), COMMENT_LINE.match(following)
        if not formatted or not comment or not next_comment or comment[1] != next_comment[1]:
            continue
        word = next_comment[2].split()[0]
        fits = len(line) + 1 + len(word) <= COMMENT_COLUMNS - COMMENT_GAP
        if fits and re.match(r"[\w`(]", word) and not re.search(r"[.:;!?,)|]$| : |clang-format|NOLINT", comment[2]):
            yield number, "join it with the next line of the comment"


def torn_literals(lines: List[str]) -> Iterator[Tuple[int, str]]:
    """Literals of a word or two inside a message of C++, before a word that fits behind them."""
    for number in range(2, len(lines)):
        line, word = lines[number - 1], re.match(r'\s*"([^" ]+ ?)', lines[number])
        if word and SHORT_LITERAL.fullmatch(line) and lines[number - 2].endswith('"') and len(line) + len(word.group(1)) <= 100:
            yield number, "join it with the next literal"
