"""Write src/core/text/unicode_tables.inc from the Unicode database of the running Python.

    python3.11 tools/make_unicode_tables.py > src/core/text/unicode_tables.inc

The tables decide what a word character is (`\\w` of `re`), what white space is (`\\s`, `str.split`) and
what `str.lower` makes of each code point, for one version of Unicode whatever Python runs later. All of it
is computed by `str` itself, so that the tables and Python agree by construction.
"""

import sys
import unicodedata
from collections.abc import Iterable

WORD, SPACE, CASED, IGNORABLE = 1, 2, 4, 8
DOTTED_I, SIGMA = 0x130, 0x3A3  # the two exceptions that a single number per code point cannot describe
BLOCK = 128


def record(code: int) -> tuple[int, int]:
    """Return (difference to the lower-case code point, flags) of a code point."""
    character = chr(code)
    lower = character.lower()
    if len(lower) != 1:
        assert code == DOTTED_I, f"U+{code:04X} has a lower case of {len(lower)} code points"
        lower = lower[0]
    # A capital sigma becomes a final one after a cased letter; characters that are "case ignorable" in
    # between do not count. One that is both cased and ignorable counts as ignorable.
    after_letter = ("A" + character + "\u03a3").lower()[-1] == "\u03c2"
    after_digit = ("1" + character + "\u03a3").lower()[-1] == "\u03c2"
    flags = (
        WORD * (character.isalnum() or character == "_")
        + SPACE * character.isspace()
        + CASED * after_digit
        + IGNORABLE * (after_letter and not after_digit)
    )
    return ord(lower) - code, flags


def check_sigma(code: int) -> None:
    """Check that lower-casing the text before a sigma does not change the form of the sigma."""
    lower = chr(code).lower()[-1]
    context = CASED | IGNORABLE
    assert code == DOTTED_I or record(code)[1] & context == record(ord(lower))[1] & context, f"U+{code:04X}"


def numbers(values: Iterable[int]) -> str:
    lines, line = [], ""
    for value in values:
        item = f"{value},"
        if len(line) + len(item) > 108:
            lines.append(line)
            line = ""
        line += item
    return "\n".join([*lines, line])


def main() -> None:
    records: dict[tuple[int, int], int] = {}
    blocks: dict[tuple[int, ...], int] = {}
    index = []
    for begin in range(0, sys.maxunicode + 1, BLOCK):
        block = tuple(records.setdefault(record(code), len(records)) for code in range(begin, begin + BLOCK))
        for code in range(begin, begin + BLOCK):
            check_sigma(code)
        index.append(blocks.setdefault(block, len(blocks)))
    assert len(records) <= 256
    assert len(blocks) <= 65536
    kind = "uint8_t" if len(blocks) <= 256 else "uint16_t"
    print("// Written by tools/make_unicode_tables.py; not to be edited.")
    print(f'constexpr char kUnicodeVersion[] = "{unicodedata.unidata_version}";')
    print(f"constexpr Record kRecords[{len(records)}] = {{")
    print("\n".join(f"{{{delta}, {flags}}}," for delta, flags in records) + "\n};")
    print(f"constexpr {kind} kBlockOf[{len(index)}] = {{")
    print(numbers(index) + "\n};")
    print(f"constexpr uint8_t kRecordOf[{len(blocks) * BLOCK}] = {{")
    print(numbers(number for block in blocks for number in block) + "\n};")


if __name__ == "__main__":
    main()
