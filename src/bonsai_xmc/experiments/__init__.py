"""The paper's tables and figures, rerun on any data set; ``bonsai experiment`` on the command line.

Examples
--------
>>> from bonsai_xmc import experiments
>>> list(experiments.EXPERIMENTS)[:4]
['datasets', 'powerlaw', 'partition', 'precision']
"""

from ._bench import Factory, System, Systems
from ._run import EXPERIMENTS, run

__all__ = ["EXPERIMENTS", "Factory", "System", "Systems", "run"]
