"""The type of arrays with any content."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
