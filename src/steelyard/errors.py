"""The errors users meet: each says what is wrong, at which address, in which program, and what to do."""


class SteelyardError(Exception):
    """Base of every error that steelyard raises on purpose.

    Example:
        >>> import steelyard as sy
        >>> try:
        ...     sy.resample(lambda s: None, method="lottery")
        ... except sy.SteelyardError as error:
        ...     print(type(error).__name__)
        ArgumentError
    """


class ArgumentError(SteelyardError, TypeError):
    """An argument is not the kind of thing that the function takes.

    Example:
        >>> import steelyard as sy
        >>> issubclass(sy.ArgumentError, sy.SteelyardError)
        True
    """


class GrammarError(SteelyardError, TypeError):
    """A combinator was given a program that the grammar does not allow there.

    Example:
        >>> import steelyard as sy
        >>> try:
        ...     sy.extend(sy.resample(lambda s: None), lambda s, c: None)
        ... except sy.GrammarError as error:
        ...     print("target program" in str(error))
        True
    """


class AddressError(SteelyardError, ValueError):
    """An address is used twice, is unknown, or holds a value that does not fit.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def twice(s):
        ...     s.sample("z", dist.Normal(0.0, 1.0))
        ...     s.sample("z", dist.Normal(0.0, 1.0))
        >>> try:
        ...     sy.evaluate(twice, jax.random.key(0), particles=2)
        ... except sy.AddressError as error:
        ...     print("'z'" in str(error))
        True
    """


class MeasureError(SteelyardError, ValueError):
    """A proposal and its target do not have densities of the same kind, so that their ratio is no weight.

    A density is compared with the mass of a point: the proposal is discrete or a `Delta` and the target continuous, or
    the other way round.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.Delta(0.3))
        >>> try:
        ...     sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=2)
        ... except sy.MeasureError as error:
        ...     print("'z'" in str(error))
        True
    """


class SupportWarning(UserWarning):
    """A proposal never reaches a part of its target, so that log Z and expectations leave this part out.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy, warnings
        >>> def model(s): s.sample("z", dist.Normal(0.0, 1.0))
        >>> def guide(s): s.sample("z", dist.HalfNormal(1.0))
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     out = sy.evaluate(sy.propose(model, guide), jax.random.key(0), particles=2)
        >>> caught[0].category is sy.SupportWarning
        True
    """


class ObservedKernelError(SteelyardError, ValueError):
    """The kernel of an `extend` holds an observed variable or a factor.

    Example:
        >>> import steelyard as sy
        >>> issubclass(sy.ObservedKernelError, sy.SteelyardError)
        True
    """


class LoopStructureError(SteelyardError, ValueError):
    """The step of a `scan` changes the addresses, shapes or types of the particles.

    Example:
        >>> import jax, numpyro.distributions as dist, steelyard as sy
        >>> def start(s): return s.sample("z0", dist.Normal(0.0, 1.0))
        >>> def grow(s, z): return s.sample("z1", dist.Normal(z, 1.0))
        >>> try:
        ...     q = sy.scan(lambda q, x: sy.compose(grow, q), start, None, length=3)
        ...     sy.evaluate(q, jax.random.key(0), particles=2)
        ... except sy.LoopStructureError as error:
        ...     print("'z1'" in str(error))
        True
    """


class WeightError(SteelyardError, ArithmeticError):
    """The weights carry no information: one is NaN, or all of them are zero.

    Example:
        >>> import jax, steelyard as sy
        >>> def impossible(s):
        ...     s.factor("never", -jax.numpy.inf)
        >>> try:
        ...     sy.evaluate(impossible, jax.random.key(0), particles=2)
        ... except sy.WeightError as error:
        ...     print("every particle has weight zero" in str(error))
        True
    """


class CheckpointError(SteelyardError, OSError):
    """A directory holds no checkpoint of this run, or a damaged one; or another run uses it; or it cannot be written.

    Example:
        >>> import steelyard as sy
        >>> issubclass(sy.CheckpointError, sy.SteelyardError)
        True
    """
