"""The paper's tables and figures, on any data set: ``python -m reproduce``, or ``make paper``.

Examples
--------
>>> import reproduce
>>> list(reproduce.EXPERIMENTS)[:4]
['datasets', 'powerlaw', 'partition', 'precision']
"""

from .bench import Factory, System, Systems
from .experiments import EXPERIMENTS, run

__all__ = ["EXPERIMENTS", "Factory", "System", "Systems", "run"]
