"""Inference programming on JAX: properly weighted samplers, by construction."""

from steelyard import testing as testing
from steelyard.errors import AddressError as AddressError
from steelyard.errors import ArgumentError as ArgumentError
from steelyard.errors import GrammarError as GrammarError
from steelyard.errors import ObservedKernelError as ObservedKernelError
from steelyard.errors import SteelyardError as SteelyardError
from steelyard.errors import WeightError as WeightError
from steelyard.language.addresses import previous as previous
from steelyard.language.combinators import compose as compose
from steelyard.language.combinators import extend as extend
from steelyard.language.combinators import move as move
from steelyard.language.combinators import prev as prev
from steelyard.language.combinators import propose as propose
from steelyard.language.combinators import rename as rename
from steelyard.language.combinators import resample as resample
from steelyard.language.rewrite import marginal as marginal
from steelyard.language.rewrite import target as target
from steelyard.language.show import show as show
from steelyard.language.state import State as State
from steelyard.semantics.check import check as check
from steelyard.semantics.evaluate import Addresses as Addresses
from steelyard.semantics.evaluate import addresses as addresses
from steelyard.semantics.evaluate import evaluate as evaluate
from steelyard.semantics.evaluate import log_density as log_density
from steelyard.semantics.evaluation import Evaluation as Evaluation
from steelyard.semantics.evaluation import LevelSummary as LevelSummary
