"""How many blocks of classifiers a search by an index scores for a row: measured at the end of `fit`."""

from dataclasses import dataclass

# Further blocks for each label beyond the tenth, at least.
_PER_LABEL = 4


@dataclass(frozen=True)
class Probes:
    """Blocks that are scored for the 5 and for the 10 best labels, and the share of these that is found.

    0 stands for all blocks: half of them find too little.
    """

    n_rows: int  # that were searched
    n_probe_5: int
    n_probe_10: int
    recall_5: float
    recall_10: float

    def n_probe(self, k: int) -> int:
        """Return the number of blocks for the k best labels; 0 for all."""
        few, many = self.n_probe_5, self.n_probe_10
        if k <= 5 or few == 0:
            return few
        if many == 0:
            return 0
        more = (many - few) / 5
        return round(few + more * (k - 5)) if k <= 10 else round(many + max(more, _PER_LABEL) * (k - 10))
