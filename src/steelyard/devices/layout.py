"""Over how many devices the particles are laid out.

The mesh is JAX's own context: `evaluate(..., mesh=mesh)` enters it, and whoever needs to know asks. Arrays have their
global shape everywhere, so that programs, objectives and rules need not know. What runs inside of `apart_on_devices`
sees the particles of one device.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from steelyard.errors import ArgumentError

# The axis of a mesh that particles are laid over.
AXIS = "particles"

SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()


def checked(mesh: Any, particles: int, place: str) -> Mesh:
    """Return a mesh over which so many particles can be laid, whose axes are left to the compiler.

    Raises:
        ArgumentError: it has no axis for particles, or they cannot be shared out evenly.
    """
    if not isinstance(mesh, Mesh):
        raise ArgumentError(
            f'{place}: mesh is a mesh of devices, such as jax.make_mesh((2,), ("{AXIS}",)), got {mesh!r}.'
        )
    if AXIS not in mesh.axis_names:
        raise ArgumentError(
            f"{place}: the mesh has the axes {', '.join(map(repr, mesh.axis_names)) or 'none'}, and none is called "
            f'"{AXIS}". Particles are laid over the axis of that name: jax.make_mesh((2,), ("{AXIS}",)).'
        )
    count = mesh.shape[AXIS]
    if particles % count:
        raise ArgumentError(
            f"{place}: {particles:,} particles cannot be shared out evenly to {count} devices. Use a multiple "
            f"of {count}, for example {-(-particles // count) * count:,}."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def devices(particles: int) -> int:
    """Return over how many devices so many particles are laid now; one, outside of a mesh and on a device."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or AXIS not in mesh.auto_axes or particles % mesh.shape[AXIS]:
        return 1
    return mesh.shape[AXIS]


def laid_out(tree: Any, particles: int) -> Any:
    """Return arrays that have the particle axis first, laid out over the devices."""
    if devices(particles) == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, SPLIT), tree)


def as_on_a_device(particles: int) -> AbstractContextManager[Any]:
    """Trace as inside of `apart_on_devices`, if so many particles are on more than one device."""
    if devices(particles) == 1:
        return nullcontext()
    mesh = jax.sharding.get_abstract_mesh()
    return jax.sharding.use_abstract_mesh(mesh.update_axis_types({AXIS: AxisType.Manual}))


def apart_on_devices(
    f: Callable[..., Any], in_specs: Any, out_specs: Any, mesh: AbstractMesh | None = None
) -> Callable[..., Any]:
    """Return the function that runs f on every device, with the particles that the device has.

    The devices are those of the mesh, or if None, those over which particles are laid out now.

    The checks of `shard_map` are off: they would refuse loops in programs of users that begin with a constant.
    """
    return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={AXIS}, check_vma=False)
