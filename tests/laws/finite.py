"""Finite distributions, and primitive programs as data: what the generated inference programs are made of.

Enumeration runs a program thousands of times, so that arithmetic on concrete values is NumPy and Python here; on
tracers it is JAX. The same programs run in both engines.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import steelyard as sy

Row: TypeAlias = tuple[float, ...]
Rows: TypeAlias = tuple[Row, ...]


def _traced(*values: Any) -> bool:
    return any(isinstance(value, jax.core.Tracer) for value in values)


@dataclass(frozen=True)
class Finite:
    """The distribution on 0, ..., n-1 with these probabilities."""

    probabilities: Any

    def sample(self, key: Any) -> Any:
        uniform = jax.random.uniform(key)
        if _traced(uniform, self.probabilities):
            return jnp.sum(uniform >= jnp.cumsum(jnp.asarray(self.probabilities))[:-1])
        return int(np.sum(float(uniform) >= np.cumsum(self.probabilities)[:-1]))

    def log_prob(self, value: Any) -> Any:
        """Return -inf outside of the support: a proposal may have more values than its target."""
        size = len(self.probabilities)
        if _traced(value, self.probabilities):
            inside = (value >= 0) & (value < size)
            row = jnp.asarray(self.probabilities)
            return jnp.where(inside, jnp.log(row[jnp.clip(value, 0, size - 1)]), -jnp.inf)
        value = int(value)
        probability = self.probabilities[value] if 0 <= value < size else 0.0
        return math.log(probability) if probability > 0 else -math.inf

    def enumerate_support(self) -> range:
        return range(len(self.probabilities))


def row_of(rows: tuple[Any, ...], index: Any) -> Any:
    """Return the row that an index selects, which may be traced; it wraps around. A single row depends on nothing."""
    if len(rows) == 1:
        return rows[0]
    if _traced(index):
        return jnp.asarray(rows)[index % len(rows)]
    return rows[int(index) % len(rows)]


@dataclass(frozen=True)
class Sample:
    """s.sample(address, ...): one row of probabilities for each state of the program."""

    address: str
    rows: Rows


@dataclass(frozen=True)
class Observe:
    """s.observe(address, ..., value)."""

    address: str
    rows: Rows
    value: int


@dataclass(frozen=True)
class Factor:
    """s.factor(address, ...): one number for each state of the program, -inf among them."""

    address: str
    log_values: Row


@dataclass(frozen=True)
class When:
    """with s.when(...): in the particles whose state has this parity."""

    parity: int
    body: "tuple[Statement, ...]"


Statement: TypeAlias = Sample | Observe | Factor | When
Returns: TypeAlias = Literal["state", "pair", "argument", "nothing"]


@dataclass(frozen=True)
class Table:
    """A primitive program, written for one particle.

    Its state is a number: what it was called with, to which each sampled value is added. Every distribution, factor
    and presence depends on the state, and so do later programs through what is returned.

    With a `shift` the state begins somewhere else; in a scan it is what the step is given. `tilt` is a parameter of all
    densities, for gradients.
    """

    statements: tuple[Statement, ...]
    returns: Returns = "state"
    shift: Any = None
    tilt: Any = None

    def __call__(self, s: sy.State, argument: Any = 0) -> Any:
        start = _number(argument) if self.shift is None else _number(argument) + self.shift
        state = _run(s, self.statements, start, self.tilt)
        match self.returns:
            case "state":
                return state
            case "pair":
                return {"state": state, "argument": _number(argument)}
            case "argument":
                return argument
            case "nothing":
                return None


def _number(argument: Any) -> Any:
    match argument:
        case None:
            return 0
        case {"state": state, "argument": inner}:
            return state + 2 * inner
        case _:
            return argument


def _run(s: sy.State, statements: tuple[Statement, ...], state: Any, tilt: Any) -> Any:
    for statement in statements:
        match statement:
            case Sample(address, rows):
                # The factor tells 0, 1 from 1, 0; the remainder keeps states few, so that outcomes can be merged.
                state = (3 * state + s.sample(address, _distribution(rows, state, tilt))) % 12
            case Observe(address, rows, value):
                s.observe(address, _distribution(rows, state, tilt), value)
            case Factor(address, log_values):
                log_value = row_of(log_values, state)
                s.factor(address, log_value if tilt is None else log_value + tilt)
            case When(parity, body):
                with s.when((state + parity) % 2 == 1):
                    inside = _run(s, body, state, tilt)
                # Inside the block the state follows placeholders; they are constants, so that either state would do.
                state = inside
    return state


def _distribution(rows: Rows, state: Any, tilt: Any) -> Finite:
    row = row_of(rows, state)
    if tilt is None:
        return Finite(row)
    weights = jnp.asarray(row) * jnp.exp(tilt * jnp.arange(len(rows[0])))
    return Finite(weights / jnp.sum(weights))


def statements_of(statements: tuple[Statement, ...]) -> list[Statement]:
    """Return every statement, those inside of `when` too."""
    return [
        inner
        for statement in statements
        for inner in [statement, *(statements_of(statement.body) if isinstance(statement, When) else [])]
    ]


def without_weights(table: Table) -> Table:
    """Return the program that samples the same and observes nothing."""

    def sampling(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(
            replace(statement, body=sampling(statement.body)) if isinstance(statement, When) else statement
            for statement in statements
            if isinstance(statement, Sample | When)
        )

    return replace(table, statements=sampling(table.statements))
