# %% [markdown]
# # Scaling out
#
# *What do I do when there are more particles than memory, more steps than patience, or more than one device?*
#
# Four answers, each measured by what does not depend on how busy the machine is: bytes, the size of compiled programs, and an exact log Z.

# %%
import os

# Four devices, made from one CPU; before JAX is imported. Leave it out where there are real ones.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import steelyard as sy

# %% [markdown]
# ## More particles than memory: chunk
#
# A pendulum with unknown stiffness and friction. On the way to a weight, each particle simulates 500 steps: for 50,000 particles that is an array of
# 100 MB, of which only a sum is used. With `chunk=n`, programs run on n particles at a time. The particles and their weights are the same.
#
# Not every model gains. Where XLA fuses all that a particle computes into one sum, the large array is never made: a linear regression on three columns takes the
# same memory with and without chunks. Measure, as below.

# %%
STEPS, PARTICLES, NOISE = 500, 50_000, 0.5


def swing(stiffness, friction):
    """The angle at each step of 0.05 seconds."""

    def step(state, _):
        angle, speed = state
        speed = speed - 0.05 * (stiffness * jnp.sin(angle) + friction * speed)
        angle = angle + 0.05 * speed
        return (angle, speed), angle

    return jax.lax.scan(step, (jnp.float32(1.0), jnp.float32(0.0)), None, STEPS)[1]


def pendulum(s, angles):
    stiffness = s.sample("stiffness", dist.Normal(1.0, 0.1))
    friction = s.sample("friction", dist.Uniform(0.0, 0.3))
    s.observe("angles", dist.Normal(swing(stiffness, friction), NOISE), angles)


noise = jnp.array(np.random.default_rng(0).normal(size=STEPS), jnp.float32)
angles = swing(1.05, 0.1) + NOISE * noise


def compiled(chunk):
    def run(key, angles):
        out = sy.evaluate(pendulum, key, angles, particles=PARTICLES, chunk=chunk)
        return out.log_z, out.expect(lambda t: t["stiffness"])

    return jax.jit(run).lower(jax.random.key(0), angles).compile()


chunks = [500, 2000, 10_000, None]
programs = {chunk: compiled(chunk) for chunk in chunks}
megabytes = {
    chunk: program.memory_analysis().temp_size_in_bytes / 1e6
    for chunk, program in programs.items()
}
for chunk, size in megabytes.items():
    print(f"chunk={chunk!s:6} {size:7.1f} MB beside the result")
assert megabytes[500] < megabytes[None] / 10

# %% [markdown]
# With two unknowns, a grid gives the exact evidence.

# %%
log_z, mean = programs[500](jax.random.key(0), angles)
stiffness = jnp.linspace(0.6, 1.4, 401)
friction = (jnp.arange(150) + 0.5) / 150 * 0.3


def log_density(k, c):
    fit = dist.Normal(swing(k, c), NOISE).log_prob(angles).sum()
    return fit + dist.Normal(1.0, 0.1).log_prob(k)


one_row = jax.vmap(log_density, in_axes=(None, 0))
table = jax.lax.map(lambda k: one_row(k, friction), stiffness)
exact = jax.nn.logsumexp(table) + jnp.log(0.8 / 400 / 150)
exact_mean = jax.nn.softmax(table.ravel()).reshape(table.shape).sum(1) @ stiffness
print(f"log Z {log_z:.3f}, exact {exact:.3f}")
print(f"stiffness {mean:.4f}, exact {exact_mean:.4f}")
assert abs(log_z - exact) < 0.1 and abs(mean - exact_mean) < 0.005


# %% [markdown]
# ## More steps than patience: scan
#
# Steps that are written out in Python are compiled one by one. A `scan` is compiled once.


# %%
def transition(y, name=""):
    def step(s, z):
        z = s.sample("z" + name, dist.Normal(0.9 * z, 0.5))
        s.observe("y" + name, dist.Normal(z, 0.5), y)
        return z

    return step


def start(s):
    return s.sample("z", dist.Normal(0.0, 1.0))


def looped(ys):
    def advance(q, y):
        return sy.move(transition(y), sy.resample(q))

    return sy.scan(advance, start, ys, keep=["z"])


def written_out(ys):
    q = start
    for t, y in enumerate(ys):
        q = sy.compose(transition(y, f"_{t}"), sy.resample(q))
    return q


def instructions(sampler, steps):
    """How many lines XLA is given to compile."""
    ys = jnp.zeros(steps)
    run = jax.jit(lambda key: sy.evaluate(sampler(ys), key, particles=100).log_z)
    return run.lower(jax.random.key(0)).as_text().count("\n")


lengths = [2, 4, 8, 16]
sizes = {
    sampler.__name__: [instructions(sampler, n) for n in lengths]
    for sampler in (looped, written_out)
}
print(sizes)
assert sizes["looped"][0] == sizes["looped"][-1]

# %% [markdown]
# ## More than one device
#
# Independent populations need no communication. `vmap` over keys, lay the keys over the devices, and average the weights: the average of
# unbiased estimates of Z is unbiased. Keys belong to particles, so that the result is the same on any number of devices. One population that
# is larger than a device is `evaluate(..., mesh=mesh)`: [Scaling out](../scaling.md).


# %%
def population(key):
    return sy.evaluate(pendulum, key, angles, particles=5000).log_z


keys = jax.random.split(jax.random.key(1), 8)
run = jax.jit(jax.vmap(population))
mesh = Mesh(jax.devices(), ("populations",))
spread = jax.device_put(keys, NamedSharding(mesh, PartitionSpec("populations")))
here, there = run(keys), run(spread)
print("on", len(there.sharding.device_set), "devices")
log_z = jax.nn.logsumexp(there) - jnp.log(8)
print(f"log Z of eight populations: {log_z:.3f}, exact {exact:.3f}")
np.testing.assert_allclose(np.asarray(here), np.asarray(there), rtol=1e-6)
assert abs(log_z - exact) < 0.1

# %% [markdown]
# One population can be spread as well: `mesh=` lays its particles over the mesh axis "particles". The same key draws the same particles, up to
# the last digit, which may be rounded differently. Weights are sums of 500 such terms; so a few ancestors of a resampling can differ.

# %%
over = Mesh(jax.devices(), ("particles",))


def drawn(program, mesh):
    return sy.evaluate(program, keys[0], angles, particles=4000, mesh=mesh)


alone, laid = drawn(pendulum, None), drawn(pendulum, over)
for name in ("stiffness", "friction"):
    np.testing.assert_allclose(alone.trace[name], laid.trace[name], rtol=1e-6)
print("one population on", len(laid.log_weight.sharding.device_set), "devices")
print(
    f"log weights differ by at most {abs(alone.log_weight - laid.log_weight).max():.0e}"
)
once, spread_out = (drawn(sy.resample(pendulum), mesh) for mesh in (None, over))
other = np.asarray(once.trace["stiffness"]) != np.asarray(
    spread_out.trace["stiffness"]
)
print(f"ancestors that differ after a resampling: {other.sum()} of 4000")
assert abs(once.log_z - spread_out.log_z) < 1e-2 and other.mean() < 0.01

# %%
fig, (left, right) = plt.subplots(1, 2)
names = [f"{chunk:,}" if chunk else "all" for chunk in chunks]
left.bar(names, list(megabytes.values()))
left.set(xlabel="chunk", title="MB for 50,000 particles", yscale="log")
for name, values in sizes.items():
    right.plot(lengths, values, "o-", label=name.replace("_", " "))
right.set(xlabel="steps", title="lines of the program", ylim=(0, None))
right.legend(fontsize=8)

# %% [markdown]
# ## The rest
#
# - `jax.jit` around `evaluate`, once, outside of your loops. A second call with arrays of the same shapes compiles nothing.
# - Gradients of long loops: `scan(..., remat=True)` keeps only the particles between the steps.
# - A minibatch is a `vmap` over `evaluate`, outside; data that all particles share is never copied for them.
# - Training over devices, and several hosts: [scaling out](../scaling.md#training).
# - Double precision, where log weights are in the hundred thousands: `jax.enable_x64(True)`.
#   [How many digits there are](../samplers.md#how-many-digits-there-are).
