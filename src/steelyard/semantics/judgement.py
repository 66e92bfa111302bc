"""How judgements are reached: each program has its rule, and a rule waits for its premises.

No rule calls another, so that a program of a thousand levels needs no deep recursion.
"""

from collections.abc import Callable
from typing import Any

from steelyard.errors import GrammarError
from steelyard.language.describe import describe
from steelyard.language.programs import (
    Adapt,
    Carried,
    Compose,
    Detach,
    Extend,
    Mcmc,
    Metropolis,
    Move,
    Prev,
    Primitive,
    Program,
    Propose,
    Rename,
    Resample,
    Scan,
    Transport,
)
from steelyard.language.rewrite import target
from steelyard.semantics import markov, rules, transports
from steelyard.semantics.engine import Engine, Premise, Rule, Trace
from steelyard.semantics.evaluation import Evaluation

# Programs that have values substituted, rule(engine, q, c0, tau0).
RULES: dict[type[Program], Callable[..., Rule]] = {
    Prev: rules.prev,
    Rename: rules.rename,
    Compose: rules.compose,
    Move: rules.move,
    Transport: transports.transport,
    Carried: rules.carried,
}
# Targets, which may be known in part, rule(engine, q, c0, tau0, known).
TARGET_RULES: dict[type[Program], Callable[..., Rule]] = {Primitive: rules.primitive, Extend: rules.extend}
# Inference programs, rule(engine, q, c0). Under substitution they are evaluated as their target (appendix C).
INFERENCE_RULES: dict[type[Program], Callable[..., Rule]] = {
    Propose: rules.propose,
    Resample: rules.resample,
    Detach: rules.detach,
    Scan: rules.scan,
    Adapt: rules.adapt,
    Mcmc: markov.mcmc,
    Metropolis: markov.metropolis,
}


def evaluate(
    engine: Engine, premise: Premise, seen: Callable[[Program, Trace | None, Evaluation], None] | None = None
) -> Evaluation:
    """Reach a judgement by the rules. `seen` is told of every judgement on the way."""
    running = [(premise, apply(engine, premise))]
    e: Any = None
    while running:
        judged, rule = running[-1]
        try:
            premise = rule.send(e)
        except StopIteration as conclusion:
            running.pop()
            e = conclusion.value
            if seen is not None:
                seen(judged.q, judged.tau0, e)
        else:
            running.append((premise, apply(engine, premise)))
            e = None
    return e


def apply(engine: Engine, premise: Premise) -> Rule:
    """Return the rule for a premise, applied to it."""
    q, c0, tau0, known = premise
    if (kind := type(q)) in TARGET_RULES:
        return TARGET_RULES[kind](engine, q, c0, tau0, known)
    if kind in RULES:
        return RULES[kind](engine, q, c0, tau0)
    if kind not in INFERENCE_RULES:
        raise GrammarError(f"{describe(q)}: there is no rule for {kind.__name__} in semantics/judgement.py.")
    return INFERENCE_RULES[kind](engine, q, c0) if tau0 is None else apply(engine, Premise(target(q), c0, tau0))
