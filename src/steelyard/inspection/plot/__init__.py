"""Pictures of evaluations and of training, with matplotlib. Each function draws on axes and returns them.

Nothing is shown and no setting is changed: `matplotlib.pyplot.show()` and styles are yours.
"""

from steelyard.inspection.plot.curves import filtered as filtered
from steelyard.inspection.plot.curves import history as history
from steelyard.inspection.plot.curves import levels as levels
from steelyard.inspection.plot.panels import particles as particles
