"""Training over many devices: seeds, data and particles are each shared out along an axis of the mesh of that name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from steelyard.arguments import check_key
from steelyard.devices.layout import AXIS, checked
from steelyard.errors import ArgumentError
from steelyard.training.minibatches import rows_of
from steelyard.types import is_traced

SEEDS, DATA = "seeds", "data"


@dataclass(frozen=True)
class Layout:
    """How training lies on devices; everything is on one, if the mesh is None.

    Attributes:
        mesh: the devices.
        has_seeds: whether several seeds are trained side by side.
        all_data: whether every step learns from all data, which then lie on the devices. Minibatches are drawn from
            all data by every device.
    """

    mesh: Mesh | None = None
    has_seeds: bool = False
    all_data: bool = False

    def on_one_device(self) -> "Layout":
        """Return the same training on one device."""
        return Layout(None, self.has_seeds, self.all_data)

    @property
    def is_apart(self) -> bool:
        """Whether devices run by themselves. The engine lays particles over them, and the compiler then the rest."""
        return self.mesh is not None and self.mesh.shape.get(AXIS, 1) == 1

    @property
    def shares(self) -> int:
        """Over how many devices, which run by themselves, the data of a step are shared out."""
        return self._along_data if self.is_apart else 1

    @property
    def _along_data(self) -> int:
        return 1 if self.mesh is None else self.mesh.shape.get(DATA, 1)

    @property
    def _by_seed(self) -> PartitionSpec:
        return PartitionSpec(SEEDS) if self.has_seeds else PartitionSpec()

    @property
    def _by_datum(self) -> PartitionSpec:
        return PartitionSpec(DATA) if self.all_data and self._along_data > 1 else PartitionSpec()

    def share_of(self, x: Any) -> Any:
        """Return, on a device, its share of an array that has the data of a step as its first axis."""
        if self.shares == 1:
            return x if self._along_data == 1 else jax.lax.with_sharding_constraint(x, PartitionSpec(DATA))
        own = x.shape[0] // self.shares
        return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(DATA) * own, own)

    def mean(self, tree: Any) -> Any:
        """Return the average over the devices that have shares of the data."""
        return tree if self.shares == 1 else jax.lax.pmean(tree, DATA)

    def spread(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for every seed, on all devices, from one of `learner, constants, key, data, *shared`.

        Its results have the seeds as first axis; without seeds, they must be the same on all devices.
        """
        mesh, own = self.mesh, self._by_seed

        def for_seeds(*args: Any) -> Any:
            return jax.vmap(f, in_axes=(0, 0, 0, *(None,) * len(args[3:])))(*args) if self.has_seeds else f(*args)

        def on_devices(*args: Any) -> Any:
            if mesh is None:
                return for_seeds(*args)
            if self.is_apart:
                specs = own, own, own, self._by_datum, *(PartitionSpec(),) * len(args[4:])
                # The check would refuse loops in programs of users that begin with a constant.
                return jax.shard_map(for_seeds, mesh=mesh, in_specs=specs, out_specs=own, check_vma=False)(*args)
            with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
                return for_seeds(*args)

        return on_devices

    def placed(self, learner: Any) -> Any:
        """Return what was learned, where it belongs."""
        return self._put(learner, self._by_seed)

    def placed_data(self, data: Any) -> Any:
        """Return the data, where they belong."""
        return self._put(data, self._by_datum)

    def placements(self) -> tuple[Any, Any] | None:
        """Return where what was learned is after a step, and where what happened: on each device."""
        if self.mesh is None:
            return None
        return NamedSharding(self.mesh, self._by_seed), NamedSharding(self.mesh, PartitionSpec())

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        if self.mesh is None:
            return tree
        where = NamedSharding(self.mesh, spec)

        def put(x: Any) -> Any:
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                # Keys cannot be put on devices of other processes, but their words can.
                return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
            return jax.lax.with_sharding_constraint(x, where) if is_traced(x) else jax.device_put(x, where)

        return jax.tree.map(put, tree)

    def check_data(self, data: Any, batch_size: int | None, place: str) -> None:
        """Raise `ArgumentError` unless the data of a step can be shared out evenly."""
        if self.mesh is None or DATA not in self.mesh.axis_names:
            return
        rows, devices = rows_of(data), self._along_data
        if rows is None:
            raise ArgumentError(f'{place}: the mesh has an axis "{DATA}", but there are no data to lay over it.')
        if batch_size is not None and batch_size % devices:
            raise _uneven(place, f"batch_size={batch_size:,}", batch_size, devices, DATA)
        if batch_size is None and rows % devices:
            raise ArgumentError(
                f'{place}: {rows:,} data cannot be shared out evenly to the {devices} devices of the axis "{DATA}". '
                f"Leave {rows % devices} of them out, or choose a batch_size that is a multiple of {devices}."
            )

    def check_keys(self, key: Any, place: str) -> Array:
        """Return the key of the run, or with seeds one for each.

        Raises:
            ArgumentError: it is not that.
        """
        if not self.has_seeds:
            return check_key(key, place)
        if not jnp.issubdtype(getattr(key, "dtype", np.void), jax.dtypes.prng_key) or key.ndim != 1:
            raise ArgumentError(
                f'{place}: the mesh has an axis "{SEEDS}", so that key is an array with a key for each seed, as '
                f"jax.random.split(jax.random.key(0), 8); got {key!r}."
            )
        return key

    def check_seeds(self, models: Any, place: str, keys: tuple[int, ...] = ()) -> None:
        """Raise `ArgumentError` unless all arrays of the models have the seeds as first axis, as many as keys."""
        if not self.has_seeds or self.mesh is None:
            return
        leaves = jax.tree.leaves_with_path(models)
        shapes: list[tuple[Any, tuple[int, ...]]] = [
            (path, np.shape(x)) for path, x in leaves if is_array(x) or isinstance(x, float)
        ]
        seeds = next(iter([*keys, *(shape[0] for _, shape in shapes if shape)]), 0)
        for path, shape in shapes:
            if shape[:1] != (seeds,):
                raise ArgumentError(
                    f"{place}: models{jax.tree_util.keystr(path)} has shape {shape}, without an axis of {seeds} seeds "
                    f"in front. Make the models of all seeds at once: jax.vmap(make)(keys), of Equinox modules "
                    f"eqx.filter_vmap(make)(keys)."
                )
        if seeds % (devices := self.mesh.shape[SEEDS]):
            raise _uneven(place, f"{seeds:,} seeds", seeds, devices, SEEDS)


def layout_of(mesh: Any, particles: int, batch_size: int | None, place: str) -> Layout:
    """Return how training lies on a mesh.

    Raises:
        ArgumentError: it is no mesh, has none of the axes, or the particles cannot be shared out evenly.
    """
    if mesh is None:
        return Layout()
    names = mesh.axis_names if isinstance(mesh, Mesh) else (AXIS,)
    if not {SEEDS, DATA, AXIS} & set(names):
        raise ArgumentError(
            f"{place}: the mesh has the axes {', '.join(map(repr, names)) or 'none'}. What is laid over it has the "
            f'name of an axis: "{SEEDS}", "{DATA}" or "{AXIS}", as jax.make_mesh((2,), ("{DATA}",)).'
        )
    if AXIS in names:
        mesh = checked(mesh, particles, place)
    auto = Mesh(mesh.devices, names, axis_types=(AxisType.Auto,) * len(names))
    return Layout(auto, SEEDS in names, batch_size is None)


def is_array(x: Any) -> bool:
    """Tell whether this is an array."""
    return isinstance(x, jax.Array | np.ndarray)


def _uneven(place: str, what: str, count: int, devices: int, axis: str) -> ArgumentError:
    return ArgumentError(
        f'{place}: {what} cannot be shared out evenly to the {devices} devices of the axis "{axis}". Use a multiple of '
        f"{devices}, for example {-(-count // devices) * devices:,}."
    )
