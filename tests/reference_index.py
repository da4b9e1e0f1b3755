"""The index over one-vs-rest classifiers and its search in plain Python."""

import numpy as np

import reference

BLOCK, LEVELS, GROUPS, SHORT = 128, 128, 16, 64
POSTINGS_PER_PROBE = 1280
KEPT_MASS = 0.75
LARGEST_SUM = np.float32(32000)


def _bits(value) -> int:
    return int(np.float32(value).view(np.uint32))


def _float(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


class Index:
    """lists[f]: (level, negative, position) of the weights of feature f that are kept, ascending.

    The last list holds what biases differ by from the most common one. levels: the magnitude of each level.
    """

    def __init__(self, W, scale, bias) -> None:
        W, scale, bias = np.asarray(W, int), np.float32(scale), np.float32(bias)
        kept = []
        for position, w in enumerate(W):
            for f in np.flatnonzero(np.abs(w) >= max(1, _smallest_kept(np.abs(w)))):
                magnitude = np.abs(scale[position]) * np.float32(abs(w[f]))
                kept.append((f, magnitude, (w[f] < 0) != (scale[position] < 0), position))
        values, counts = np.unique(bias, return_counts=True)
        more = bias - values[counts.argmax()]
        kept += [(W.shape[1], abs(more[p]), more[p] < 0, p) for p in np.flatnonzero(more)]
        first = _bits(max((magnitude for _, magnitude, _, _ in kept), default=0.0)) >> 19
        self.levels = [
            _float((first - l) << 19 | 1 << 18) if l <= first else np.float32(0) for l in range(LEVELS)
        ]
        self.lists = [[] for _ in range(W.shape[1] + 1)]
        for f, magnitude, negative, position in kept:
            level = first - (_bits(magnitude) >> 19)
            if level < LEVELS:
                self.lists[f].append((level, bool(negative), position))
        for postings in self.lists:
            postings.sort()
        self.n_positions = len(W)

    def arrays(self):
        """Return the arrays as the model file stores them."""
        words, ends = [], [0]
        for postings in self.lists:
            if len(postings) > SHORT:
                words += [self._in_groups(postings, g + 1) for g in range(GROUPS)]
            words += [level << 25 | negative << 24 | position for level, negative, position in postings]
            ends.append(len(words))
        return {
            "list_ptr": np.array(ends, np.int64),
            "postings": np.array(words, np.uint32),
            "levels": np.array(self.levels, np.float32),
        }

    def _in_groups(self, postings, n) -> int:
        return sum(level < n * (LEVELS // GROUPS) for level, _, _ in postings)

    def find_blocks(self, x, n_probe, normalize=True) -> set[int]:
        """Return the blocks with the largest sums of a row's largest products, within the budget."""
        step = reference.step_of(x)
        norm = np.linalg.norm(np.float64(np.float32(x))) if normalize else 1.0
        unit = np.float32(step / norm)
        queries = [
            (self.lists[f], np.float32(np.rint(np.float64(np.float32(x[f])) / step)) * unit)
            for f in np.flatnonzero(np.rint(np.float64(np.float32(x)) / step))
        ]
        queries = [
            (postings, value) for postings, value in (*queries, (self.lists[-1], np.float32(1))) if postings
        ]
        taken = self._within_budget(queries, n_probe * POSTINGS_PER_PROBE)
        most = np.float32(0)
        for postings, value in queries:
            most += abs(value) * self.levels[postings[0][0]]
        scale = LARGEST_SUM / most if most > 0 else np.float32(0)
        n_blocks = -(-self.n_positions // BLOCK)
        sums = np.zeros(n_blocks * BLOCK, int)
        for (postings, value), n in zip(queries, taken, strict=True):
            for level, negative, position in postings[:n]:
                product = int(min(abs(value * scale) * self.levels[level], LARGEST_SUM))
                sums[position] += -product if negative != (value < 0) else product
        largest = sums.reshape(n_blocks, BLOCK).max(axis=1)
        return set(sorted(range(n_blocks), key=lambda b: (-largest[b], b))[:n_probe])

    def _within_budget(self, queries, budget) -> list[int]:
        """Return the number of postings used per list: all of a short one, else whole groups of levels."""
        if sum(len(postings) for postings, _ in queries) <= budget:
            return [len(postings) for postings, _ in queries]
        groups, total = [], 0
        for q, (postings, value) in enumerate(queries):
            if len(postings) <= SHORT:
                total += len(postings)
                continue
            for g in range(GROUPS):
                n = self._in_groups(postings, g + 1) - self._in_groups(postings, g)
                product = abs(value) * self.levels[g * (LEVELS // GROUPS) + LEVELS // GROUPS // 2]
                groups.append((_bits(product) >> 20, q, g, n))
        cut = np.inf  # products from here on are taken, by their exponent and three bits of mantissa
        for size in sorted({size for size, _, _, n in groups if n}, reverse=True):
            more = sum(n for other, _, _, n in groups if other == size)
            if total + more > budget:
                break
            total, cut = total + more, size
        last = [GROUPS if len(postings) <= SHORT else 0 for postings, _ in queries]
        for size, q, g, _ in groups:
            if size >= cut:
                last[q] = max(last[q], g + 1)
        return [self._in_groups(postings, n) for (postings, _), n in zip(queries, last, strict=True)]


def _smallest_kept(sizes) -> int:
    """Return the smallest kept weight: those kept hold three quarters of the squared norm."""
    all_of_it, kept, smallest = (sizes**2).sum(), 0, 1
    for size in range(127, 0, -1):
        if kept >= KEPT_MASS * all_of_it:
            break
        kept, smallest = kept + (sizes[sizes == size] ** 2).sum(), size
    return smallest
