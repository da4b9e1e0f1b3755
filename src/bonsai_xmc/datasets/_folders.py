"""Names of the parts of a data set in a folder."""

from pathlib import Path

from bonsai_xmc._base.files import PACKED

Layout = tuple[str, str | None]  # files of features and labels, or one file with both

# text files may also be compressed
LAYOUTS: tuple[Layout, ...] = (
    ("{part}_X_Xf.txt", "{part}_X_Y.txt"),
    ("X_{part}.npz", "Y_{part}.npz"),
    ("X.{part}.npz", "Y.{part}.npz"),
    ("{long}.txt", None),
)
LONG_NAMES = {"trn": "train", "tst": "test"}


def find_part(folder: Path, part: str, layouts: tuple[Layout, ...] = LAYOUTS) -> tuple[Path, Path | None]:
    """Return the feature and label files of a part of a data set in a folder."""
    tried = []
    for names in layouts:
        wanted = [name.format(part=part, long=LONG_NAMES.get(part, part)) for name in names if name]
        found = [path for name in wanted for path in versions(folder / name)]
        if len(found) > len(wanted):
            names_found = ", ".join(path.name for path in found)
            raise ValueError(f"{folder} has a file more than once, compressed and not: {names_found}")
        if len(found) == len(wanted):
            return found[0], found[1] if len(found) > 1 else None
        tried.append(" + ".join(wanted))
    raise FileNotFoundError(f"{folder} has no part {part!r}: looked for {', or '.join(tried)}")


def versions(path: Path) -> list[Path]:
    """Return the existing files among a file and its compressed versions."""
    names = (path.with_name(path.name + ending) for ending in ("", *PACKED))
    return [name for name in names if name.is_file()]
