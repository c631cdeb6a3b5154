"""Text tables: encoding, delimiter, decimal mark and cells of a file.

    encoding    the byte order mark, else UTF-8 if the whole file is, else Windows-1252
    delimiter   of , ; tab |: the one that gives the first records the same number of cells, and
                the most
    decimal     a comma if there are cells such as 1,5 and none such as 1.5; between commas, quoted
                cells such as 1,500 do not count

What is detected can be given instead. Line ends may be mixed, and quoted cells may hold line ends.
"""

import codecs
import csv
import re
import unicodedata
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from wri.errors import InputError, shorten

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
FALLBACK = "cp1252"
SAMPLE = 1 << 23  # characters from which the delimiter is detected; a header may be as long
BLOCK = 1 << 20  # bytes that are decoded at once
RECORDS, CELLS = 100, 100_000  # most records and cells that are examined
UNKNOWN = frozenset(
    (
        *("", "NA", "N/A", "NaN", "nan", "NULL", "null", "n/a", "<NA>", "None"),
        *("#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
    )
)
"""Texts that stand for a missing cell in every column, as in pandas."""
MISSING = UNKNOWN | {"?", "-", "--", "–", "."}
"""Texts that stand for a missing cell in a column of features."""
MARK = "="  # prefix of texts while they are read
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
FOREIGN = {
    b"PK\x03\x04": "an Excel workbook or another packed file; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old format; save the sheet as CSV",
    b"\x1f\x8b": "compressed; unpack it first",
    b"PAR1": "a Parquet file; let its name end in .parquet",
}
COMMA_NUMBER = re.compile(r"^\s*[-+]?\d*,\d+\s*$")
THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(,\d{3})+\s*")
POINT_NUMBER = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")


class Dialect(NamedTuple):
    """Form of the cells of a text file, and the names of its columns."""

    delimiter: str
    encoding: str
    decimal: str
    names: list[str]

    @property
    def described(self) -> str:
        """Differences from comma-separated UTF-8, for a person."""
        name = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        parts = (
            f"{name}-separated" if self.delimiter != "," else "",
            "" if self.encoding.startswith("utf-8") else f"encoding {self.encoding}",
            "decimal comma" if self.decimal == "," else "",
        )
        return ", ".join(filter(None, parts))


def find_dialect(path: Path, delimiter: str | None = None, encoding: str | None = None) -> Dialect:
    """Detect how a text file is written, by its first bytes and records, unless it is given.

    `delimiter` is one character or "tab". The names are empty where the file has no line.
    """
    try:
        known = codecs.lookup(encoding).name if encoding else _find_encoding(path)
        with path.open(encoding=known, newline="") as file:
            sample, whole = file.read(SAMPLE), not file.read(1)
    except (LookupError, UnicodeError) as error:
        if encoding is None:
            raise
        raise InputError(
            f"--encoding {shorten(encoding)} is unknown, or {path} is not written in it; utf-8, "
            "cp1252, latin-1 and utf-16 are common ones"
        ) from error
    if "\0" in sample:
        raise ValueError("it is not a text")
    found = _check_delimiter(delimiter) or _find_delimiter(sample, whole)
    records = _records(sample, found, whole)
    names = [unicodedata.normalize("NFC", name) for name in records[0]] if records else []
    return Dialect(found, known, _find_decimal(records[1:], found), names)


def _check_delimiter(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(
            f"--delimiter {shorten(delimiter)!r} must be one character, such as ';', or tab"
        )
    return delimiter


def _find_encoding(path: Path) -> str:
    """Return the encoding by the byte order mark, else the one that decodes the whole file."""
    with path.open("rb") as file:
        head = file.read(4)
        for mark, kind in FOREIGN.items():
            if head.startswith(mark):
                raise ValueError(f"it is {kind}")
        for mark, encoding in MARKS:
            if head.startswith(mark):
                return encoding
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return FALLBACK
    return "utf-8"


def _records(sample: str, delimiter: str, whole: bool) -> list[list[str]]:
    """Return the first records that are not blank, without the last of a cut sample."""
    reader = csv.reader(StringIO(sample, newline=""), delimiter=delimiter, skipinitialspace=True)
    found: list[list[str]] = []
    try:
        for record in reader:
            if len(found) == RECORDS or len(found) * len(record) > CELLS:
                return found
            found += [record] if record else []
    except csv.Error:
        return found
    return found if whole else found[:-1]


def _find_delimiter(sample: str, whole: bool) -> str:
    """Prefer the delimiter with the same number of cells per record, then the most cells."""

    def quality(delimiter: str) -> tuple[bool, int]:
        counts = [len(record) for record in _records(sample, delimiter, whole)] or [0]
        return len(set(counts)) == 1 and counts[0] > 1, counts[0]

    return max(DELIMITERS, key=quality)


def _find_decimal(records: list[list[str]], delimiter: str) -> str:
    cells = [cell for record in records for cell in record]
    if delimiter == ",":  # in quotes; but 1,234 is a thousand in such files
        cells = [cell for cell in cells if not THOUSANDS.fullmatch(cell)]
    commas = any(COMMA_NUMBER.fullmatch(cell) for cell in cells)
    points = any(POINT_NUMBER.fullmatch(cell) for cell in cells)
    return "," if commas and not points else "."
