"""Objectives: functions of one `Level`, whose gradients train the programs. Each is a loss, to be minimised."""

from steelyard.objectives.bounds import dreg as dreg
from steelyard.objectives.bounds import elbo as elbo
from steelyard.objectives.bounds import iwae as iwae
from steelyard.objectives.bounds import vimco as vimco
from steelyard.objectives.divergences import avo as avo
from steelyard.objectives.divergences import forward_kl as forward_kl
from steelyard.objectives.divergences import reverse_kl as reverse_kl
from steelyard.objectives.estimators import kernels_learn_by as kernels_learn_by
from steelyard.objectives.wake_sleep import apg as apg
from steelyard.objectives.wake_sleep import rws as rws
from steelyard.objectives.wake_sleep import wake_phi as wake_phi
from steelyard.objectives.wake_sleep import wake_theta as wake_theta
