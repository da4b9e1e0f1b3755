"""Faults of a file of documents: counted, and reported with their lines."""

from collections import Counter, defaultdict

#: Default maximum length of a line in bytes, more than any document needs.
MAX_LINE = 64 << 20
_SHOWN = 5  # lines that are named for each kind of fault


class Problems:
    """Faults found while a file is read; with `strict`, the first one is a ValueError."""

    def __init__(
        self, name: str, strict: bool = False, unit: str = "line", max_line: int | None = None
    ) -> None:
        self.name, self.strict, self._unit = name, strict, unit
        self.max_line = max_line or MAX_LINE
        self._adjustable = max_line is not None
        self.counts: Counter[str] = Counter()
        self._lines: dict[str, list[int]] = defaultdict(list)
        self._held: list[tuple[int, str, str]] | None = None

    def hold(self) -> None:
        """Collect faults until `release`, as rows are read ahead but faults are reported in their order."""
        self._held = []

    def release(self) -> list[tuple[int, str, str]]:
        """Return the collected faults, to be added later, and stop collecting."""
        held, self._held = self._held or [], None
        return held

    def add(self, line: int, what: str, detail: str = "") -> None:
        """Add a fault; `what` names its kind and the treatment of the row."""
        if self._held is not None:
            self._held.append((line, what, detail))
            return
        if self.strict:
            raise ValueError(f"{self.name}, {self._unit} {line}: {detail or what.partition(':')[0]}")
        self.counts[what] += 1
        if len(self._lines[what]) < _SHOWN:
            self._lines[what].append(line)

    def too_long(self, line: int, what: str) -> ValueError:
        """Return the error for a line that is too long to be held in memory."""
        more = "; if this is intended, allow more by --max-line (max_line=)" if self._adjustable else ""
        return ValueError(f"{self.name}, line {line}: {what} is longer than {self.max_line:,} bytes{more}")

    def __len__(self) -> int:
        return self.counts.total()

    def report(self) -> list[str]:
        """Return a sentence for each kind of fault."""
        found = []
        for what, count in self.counts.items():
            rows, several = ("1 row", "") if count == 1 else (f"{count:,} rows", "s")
            lines = ", ".join(f"{line:,}" for line in self._lines[what]) + (", …" if count > _SHOWN else "")
            found.append(f"{self.name}: {rows} {what} ({self._unit}{several} {lines})")
        return found
