"""Programs of other libraries as programs here, and the other way round; evaluations for other libraries."""

from steelyard.interop import arviz_groups as arviz_groups
from steelyard.interop import dataframes as dataframes
