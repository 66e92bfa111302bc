"""How judgements are reached: each program has its rule, and a rule waits for its premises.

No rule calls another, so that a program of a thousand levels needs no deep recursion.
"""

from collections.abc import Callable
from typing import Any

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
from steelyard.semantics.engine import Engine, Trace
from steelyard.semantics.evaluation import Evaluation
from steelyard.semantics.rules import Rule
from steelyard.semantics.values import Values


def evaluate(
    engine: Engine,
    q: Program,
    c0: Values,
    tau0: Trace | None,
    seen: Callable[[Program, Trace | None, Evaluation], None] | None = None,
) -> Evaluation:
    """Evaluate q by the rules. `seen` is told of every judgement on the way."""
    running = [(q, tau0, apply(engine, q, c0, tau0))]
    e: Any = None
    while running:
        q, tau0, rule = running[-1]
        try:
            premise = rule.send(e)
        except StopIteration as conclusion:
            running.pop()
            e = conclusion.value
            if seen is not None:
                seen(q, tau0, e)
        else:
            q, c0, tau0 = premise
            running.append((q, tau0, apply(engine, q, c0, tau0)))
            e = None
    return e


def apply(engine: Engine, q: Program, c0: Values, tau0: Trace | None) -> Rule:
    """Return the rule for q. Under substitution an inference program is evaluated as its target (appendix C)."""
    match q:
        case Primitive():
            return _axiom(rules.primitive(engine, q, c0, tau0))
        case Prev():
            return rules.prev(q, c0, tau0)
        case Rename():
            return rules.rename(engine, q, c0, tau0)
        case Extend():
            return rules.extend(q, c0, tau0)
        case Compose():
            return rules.compose(q, c0, tau0)
        case Move():
            return rules.move(engine, q, c0, tau0)
        case Transport():
            return transports.transport(engine, q, c0, tau0)
        case Propose() | Resample() | Detach() | Scan() | Mcmc() | Metropolis() | Adapt() if tau0 is not None:
            return apply(engine, target(q), c0, tau0)
        case Propose():
            return rules.propose(engine, q, c0)
        case Resample():
            return rules.resample(engine, q, c0)
        case Detach():
            return rules.detach(engine, q, c0)
        case Scan():
            return rules.scan(engine, q, c0)
        case Adapt():
            return rules.adapt(engine, q, c0)
        case Mcmc():
            return markov.mcmc(engine, q, c0)
        case Metropolis():
            return markov.metropolis(engine, q, c0)
        case Carried():
            return _axiom(rules.carried(q, c0, tau0))


def _axiom(conclusion: Evaluation) -> Rule:
    """A rule without premises."""
    yield from ()
    return conclusion
