"""Named methods, each a few lines of combinators on your programs."""

from steelyard.algorithms.annealing import ais as ais
from steelyard.algorithms.annealing import avo as avo
from steelyard.algorithms.annealing import nvi as nvi
from steelyard.algorithms.filtering import nasmc as nasmc
from steelyard.algorithms.filtering import smc as smc
from steelyard.algorithms.filtering import vsmc as vsmc
from steelyard.algorithms.gibbs import apg as apg
from steelyard.algorithms.gibbs import gibbs as gibbs
from steelyard.algorithms.proposals import importance as importance
from steelyard.algorithms.proposals import iwae as iwae
from steelyard.algorithms.proposals import rws as rws
from steelyard.algorithms.proposals import svi as svi
from steelyard.algorithms.tempering import tempered as tempered
