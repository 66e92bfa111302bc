"""What is remarked on a program before it runs."""

from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import steelyard as sy

normal = dist.Normal(0.0, 1.0)


def sampler(*addresses: str, observed: str | None = None) -> Any:
    def program(s: sy.State, *_: Any) -> None:
        for address in addresses:
            s.sample(address, normal)
        if observed is not None:
            s.observe(observed, normal, 0.0)

    return program


def kinds(q: Any, *args: Any) -> list[tuple[str, str]]:
    """Return the kind of each remark, and the last address that it names."""
    return [
        (remark.kind, remark.message.split("'")[1] if "'" in remark.message else "") for remark in sy.check(q, *args)
    ]


def test_nothing_to_remark() -> None:
    remarks = sy.check(sy.propose(sampler("z", "v", observed="x"), sampler("v", "z")))
    assert remarks == ()
    assert repr(remarks) == "Nothing to remark."


def test_missing_and_superfluous_variables() -> None:
    q = sy.propose(sampler("z", "alpha", observed="x"), sampler("z", "phi"))
    assert kinds(q) == [("missing", "alpha"), ("superfluous", "phi")]
    assert "from its prior" in sy.check(q)[0].message
    assert "dropped" in sy.check(q)[1].message
    assert repr(sy.check(q)).startswith("- propose(program, program): 'alpha' is not proposed")


@pytest.mark.parametrize(
    ("target", "proposal"),
    [("weight", "weigth"), ("z", "Z"), ("location", "locaton"), ("mu_1", "mu_11"), ("state", "State")],
)
def test_slips_in_spelling(target: str, proposal: str) -> None:
    q = sy.propose(sampler("other", target), sampler(proposal, "other"))
    assert [kind for kind, _ in kinds(q)] == ["spelling"]
    assert f"'{proposal}' in the proposal and '{target}' in the target" in sy.check(q)[0].message


def test_names_that_have_nothing_in_common_are_not_slips() -> None:
    assert [kind for kind, _ in kinds(sy.propose(sampler("mean"), sampler("scale")))] == ["missing", "superfluous"]


def test_proposals_for_what_the_target_observes() -> None:
    assert kinds(sy.propose(sampler("z", observed="x"), sampler("z", "x"))) == [("observed", "x")]


def test_kernels_that_never_read_their_particle() -> None:
    def first(s: sy.State, x: Any) -> Any:
        return s.sample("z", dist.Normal(x, 1.0)), x

    def blind(s: sy.State, value: Any) -> None:
        # It reads the data, which all particles share, but not the particle.
        s.sample("u", dist.Normal(value[1], 1.0))

    def sees(s: sy.State, value: Any) -> None:
        s.sample("u", dist.Normal(0.0, jnp.exp(value[0])))

    def only_observes(s: sy.State, value: Any) -> None:
        s.observe("y", dist.Normal(value[0], 1.0), 0.0)

    (remark,) = sy.check(sy.compose(blind, first), 0.5)
    assert remark.kind == "unread"
    assert f"blind ({__file__}:" in str(remark)
    assert sy.check(sy.compose(sees, first), 0.5) == ()
    assert sy.check(sy.compose(only_observes, first), 0.5) == ()


def test_every_propose_of_a_program_is_looked_at_once() -> None:
    inner = sy.propose(sampler("z", "mean"), sampler("z"))
    q = sy.resample(sy.compose(sy.propose(sampler("u"), sampler("u", "extra")), sy.resample(inner)))
    assert kinds(q) == [("missing", "mean"), ("superfluous", "extra")]
    sweep = sy.propose(sy.extend(sampler("z"), sy.prev(sampler("z"))), sy.move(sampler("z"), sampler("z")))
    assert kinds(sweep) == []


def test_programs_that_are_modules_with_parameters() -> None:
    class Guide(equinox.Module):
        weight: jax.Array

        def __call__(self, s: sy.State) -> None:
            s.sample("z", dist.Normal(self.weight, 1.0))

    guide = Guide(jnp.array(0.3))
    assert kinds(sy.propose(sampler("z", "v"), guide)) == [("missing", "v")]
    assert "Guide" in sy.check(sy.propose(sampler("z", "v"), guide))[0].place


def test_programs_are_traced_and_not_run() -> None:
    def huge(s: sy.State) -> None:
        s.sample("z", dist.Normal(jnp.zeros((1_000_000, 1_000)), 1.0))

    assert kinds(sy.propose(huge, sampler())) == [("missing", "z")]


def test_wrong_programs_are_as_wrong_as_for_evaluate() -> None:
    with pytest.raises(sy.AddressError):
        sy.check(sampler("z", "z"))
    with pytest.raises(sy.ArgumentError, match="branches"):
        sy.check(lambda s: 1 if s.sample("z", normal) > 0 else 0)
