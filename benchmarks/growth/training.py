"""Training with many parameters and with convolutions, next to the same steps written by hand."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import optax

import steelyard as sy
from benchmarks.growth.measure import ROUNDS, Cost, Growth
from steelyard.training.runs import runner
from steelyard.training.step import steps_of

STEPS, KEY, OPTIMIZER = 8, jax.random.key(0), optax.adam(1e-3)
Loss = Callable[[Any], Any]
# A function that makes some steps, and how many bytes of temporaries they take.
Steps = tuple[Callable[[], Any], int]


def by_train(loss: Loss, models: Any, single: bool) -> Steps:
    """Steps as `train` makes them."""

    def program(m: Any) -> Any:
        return sy.algorithms.svi(lambda s: s.factor("fit", -loss(m)), lambda s: None)

    steps = steps_of(program, models, OPTIMIZER, 1, None, None)
    learner = steps.trainer.init()
    run = runner(steps, jax.make_jaxpr(steps.trainer.step)(learner, KEY, None), learner, KEY, STEPS)
    step = steps.trainer.step if single else steps.in_place
    return lambda: run(learner, None, STEPS), memory(lambda before: step(before, KEY, None)[0], learner, single)


def by_hand(loss: Loss, models: Any, single: bool) -> Steps:
    """Steps that check nothing: in one loop, or in single calls."""

    def step(carry: Any) -> Any:
        models, state, _ = carry
        value, gradients = jax.value_and_grad(loss)(models)
        updates, state = OPTIMIZER.update(gradients, state, models)
        return optax.apply_updates(models, updates), state, (value, optax.tree.norm(gradients))

    start = models, OPTIMIZER.init(models), (jnp.zeros(()), jnp.zeros(()))
    call, loop = jax.jit(step), jax.jit(lambda start, n: jax.lax.fori_loop(0, n, lambda _, carry: step(carry), start))

    def in_single_calls() -> Any:
        carry = start
        for _ in range(STEPS):
            carry = call(carry)
        return carry

    return in_single_calls if single else lambda: loop(start, STEPS), memory(step, start, single)


def memory(step: Callable[[Any], Any], start: Any, single: bool) -> int:
    def loop(start: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, carry: step(carry), start)

    analysis: Any = jax.jit(step if single else loop).lower(start).compile().memory_analysis()
    return analysis.temp_size_in_bytes


def measured(*ways: Steps) -> list[Cost]:
    """Measure the ways in turn; the first round compiles."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS + 1):
        for (run, _), seconds in zip(ways, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds.append(time.perf_counter() - start)
    return [Cost(median(s[1:]) / STEPS, s[0], size) for s, (_, size) in zip(times, ways, strict=True)]


def grown(task: str, sizes: tuple[int, ...], case: Callable[[int], tuple[Loss, Any]], single: bool) -> Growth:
    costs = [measured(by_train(*case(size), single))[0] for size in sizes[:-1]]
    last, base = measured(by_train(*case(sizes[-1]), single), by_hand(*case(sizes[-1]), single))
    return Growth(task, sizes, (*costs, last), "by hand", base)


def many_parameters() -> Growth:
    """A step of Adam, by the number of parameters."""

    def case(size: int) -> tuple[Loss, Any]:
        return lambda m: jnp.sum((m - 1.0) ** 2), jnp.zeros(size)

    return grown("a step of train, by parameters", (2_000_000, 5_000_000, 12_500_000), case, single=False)


def convolutions() -> Growth:
    """A step of a convolutional network, by its channels."""
    images = jax.random.normal(jax.random.key(1), (16, 28, 28, 1))

    def case(channels: int) -> tuple[Loss, Any]:
        def loss(kernels: Any) -> Any:
            x = images
            for kernel in kernels:
                dimensions = ("NHWC", "HWIO", "NHWC")
                x = jnp.tanh(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dimensions))
            return jnp.mean((x - images) ** 2)

        return loss, [jnp.full((3, 3, a, b), 0.1) for a, b in ((1, channels), (channels, channels), (channels, 1))]

    return grown("a step of train, by channels of convolutions", (4, 8, 16), case, single=True)


ROWS = (many_parameters, convolutions)
