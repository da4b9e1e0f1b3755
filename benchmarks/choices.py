"""Validation of the one-vs-rest parameters on held-out rows; exact search unless stated.

    python -m benchmarks.choices                         # two data sets, all choices; about ten minutes
    python -m benchmarks.choices --data delicious --only "bias −1" "bias learnt" default

Held out are the dev part of EURLEX57K, 6,000 of TIBKAT's training rows and a fifth of Delicious' training
rows. Neither test rows nor TIBKAT's dev part are used. `default` is `Bonsai(classifiers="one_vs_rest")`;
every other choice differs from it as its name says. Needs the data sets (see BONSAI_DATA in
CONTRIBUTING.md).
"""

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from reproduce import known

from bonsai_xmc import Bonsai, metrics

MEASURES = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]
SEEDS = {"tibkat-core": 7, "delicious": 3}  # of the permutation whose first rows are held out
HELD_OUT = {"tibkat-core": 6000, "delicious": 0.2}


class Choice(NamedTuple):
    power: float  # exponent of the feature values, before normalisation
    options: dict[str, Any]  # of the estimator


def choice(power: float = 1.0, **options: Any) -> Choice:
    """The default, except for what is given."""
    return Choice(power, options)


CHOICES = {
    "default": choice(),
    "another seed": choice(random_state=1),
    "tail_exponent 0": choice(tail_exponent=0.0),
    "tail_exponent 0, C = 0.5": choice(tail_exponent=0.0, C=0.5),
    "tail_exponent 0, C = 2": choice(tail_exponent=0.0, C=2.0),
    "tail_exponent 0, C = 4": choice(tail_exponent=0.0, C=4.0),
    "tail_exponent 0.4": choice(tail_exponent=0.4),
    "C = 0.75": choice(C=0.75),
    "C = 1.5": choice(C=1.5),
    "tol 0.03": choice(tol=0.03),
    "prune 0.1": choice(prune=0.1),
    "prune 0.02": choice(prune=0.02),
    "feature values to the power 0.75": choice(power=0.75),
    "feature values to the power 1.25": choice(power=1.25),
}


def held_out(name: str) -> tuple[sp.csr_array, sp.csr_array, sp.csr_array, sp.csr_array]:
    """X and Y to train on, X and Y to evaluate on."""
    if name == "eurlex57k":
        data = known.load(name, test="dev")
        return data.X_train, data.Y_train, data.X_test, data.Y_test
    if name not in SEEDS:
        raise SystemExit(f"{name}: it has no held-out rows; choose from eurlex57k, {', '.join(SEEDS)}")
    data = known.load(name)
    X, Y = sp.csr_array(data.X_train), sp.csr_array(data.Y_train)
    order = np.random.default_rng(SEEDS[name]).permutation(X.shape[0])
    share = HELD_OUT[name]
    n = int(share if share > 1 else share * X.shape[0])
    held, rest = np.sort(order[:n]), np.sort(order[n:])
    return X[rest], Y[rest], X[held], Y[held]


def powered(X: sp.csr_array, power: float) -> sp.csr_array:
    if power == 1:
        return X
    return sp.csr_array((np.sign(X.data) * abs(X.data) ** power, X.indices, X.indptr), shape=X.shape)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["eurlex57k", "tibkat-core"])
    parser.add_argument("--only", nargs="+", default=list(CHOICES), choices=list(CHOICES), metavar="CHOICE")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    base = {"classifiers": "one_vs_rest", "search": "exact", "random_state": 0, "n_jobs": args.threads}
    print("| data | choice | " + " | ".join(MEASURES) + " | fit s |\n" + "| --- " * (len(MEASURES) + 3) + "|")
    for name in args.data:
        X, Y, X_held, Y_held = held_out(name)
        for name_of_choice in args.only:
            power, options = CHOICES[name_of_choice]
            model = Bonsai(**(base | options))
            begin = time.perf_counter()
            model.fit(powered(X, power), Y)
            took = time.perf_counter() - begin
            ids = model.top_k(powered(X_held, power), 5)[0]
            scores = metrics.evaluate(Y_held, ids, Y_train=Y, dataset=name)
            cells = " | ".join(f"{scores[measure]:.2f}" for measure in MEASURES)
            print(f"| {name} | {name_of_choice} | {cells} | {took:.1f} |", flush=True)


if __name__ == "__main__":
    main()
