"""Addresses, their previous versions, and renaming."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import steelyard as sy
from steelyard.language.addresses import MARK, variable
from tests.running import KEY, run, universal


def pair(s: sy.State) -> jax.Array:
    a = s.sample("a", dist.Normal(0.5, 1.0))
    s.sample("b", dist.Normal(a, 2.0))
    s.observe("x", dist.Normal(a, 0.5), 1.2)
    return a


def test_previous_versions_have_one_mark_each() -> None:
    twice = sy.previous(sy.previous("v"))
    assert twice == f"v{MARK}{MARK}"
    assert variable(twice) == variable("v") == "v"
    assert hash(sy.previous("v")) == hash(f"v{MARK}")


@pytest.mark.parametrize("address", [f"v{MARK}", f"{MARK}", f"a{MARK}b"])
def test_the_mark_is_reserved(address: str) -> None:
    def marked(s: sy.State) -> None:
        s.sample(address, dist.Normal(0.0, 1.0))

    with pytest.raises(sy.AddressError) as error:
        sy.evaluate(marked, KEY, particles=2)
    assert repr(address) in str(error.value)
    assert f"marked ({__file__}:" in str(error.value)
    assert "Choose another name" in str(error.value)
    with pytest.raises(sy.AddressError, match="rename"):
        sy.rename(pair, {"a": address})


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("address", ["", 3, None, dist.Normal(0.0, 1.0)], ids=["empty", "number", "none", "swapped"])
def test_an_address_is_a_name(address: Any) -> None:
    def program(s: sy.State) -> None:
        s.sample(address, dist.Normal(0.0, 1.0))

    with pytest.raises(sy.AddressError, match=r"program \(.*non-empty string.*The address comes first"):
        sy.evaluate(program, KEY, particles=2)


def test_renaming_changes_addresses_and_nothing_else() -> None:
    plain, renamed = run(pair, particles=3), run(sy.rename(pair, {"a": "b", "b": "a", "x": "y"}), particles=3)
    assert set(renamed.trace) == {"a", "b"}
    assert set(renamed.log_density) == {"a", "b", "y"}
    np.testing.assert_array_equal(renamed.trace["b"], plain.trace["a"])
    np.testing.assert_array_equal(renamed.trace["a"], plain.trace["b"])
    np.testing.assert_array_equal(renamed.log_weight, plain.log_weight)


def test_renaming_under_substitution() -> None:
    """The value given at a new address is the one that the program reuses at the old."""
    given = {"b": jnp.array([1.0, 2.0]), "c": jnp.array([3.0, 4.0])}
    out = run(sy.rename(pair, {"a": "b", "b": "c"}), particles=2, given=given)
    np.testing.assert_array_equal(out.value, [1.0, 2.0])
    np.testing.assert_array_equal(out.trace["c"], [3.0, 4.0])
    expected = dist.Normal(0.5, 1.0).log_prob(given["b"]) + dist.Normal(given["b"], 2.0).log_prob(given["c"])
    np.testing.assert_allclose(out.log_weight, expected + dist.Normal(given["b"], 0.5).log_prob(1.2), rtol=1e-5)
    # An old address is free: what is given there belongs to nobody.
    other = run(sy.rename(pair, {"a": "z"}), particles=2, given={"a": jnp.array([1.0, 2.0])})
    assert not np.isin([1.0, 2.0], np.asarray(other.value)).any()


def test_renaming_what_is_not_there() -> None:
    with pytest.raises(sy.AddressError) as error:
        sy.evaluate(sy.rename(pair, {"z": "w"}), KEY, particles=2)
    for part in ("rename(pair, {'z': 'w'})", "no address 'z'", "'a', 'b', 'x'"):
        assert part in str(error.value)


def test_renaming_onto_an_address_in_use() -> None:
    with pytest.raises(sy.AddressError, match=r"'a' becomes 'b', which the program has already\. Rename 'b' as well"):
        sy.evaluate(sy.rename(pair, {"a": "b"}), KEY, particles=2)
    with pytest.raises(sy.AddressError, match="more than one address becomes 'c'"):
        sy.rename(pair, {"a": "c", "b": "c"})


def test_renaming_addresses_that_no_particle_happens_to_have() -> None:
    """In the universal engine an address that is absent is not unknown."""

    def seldom(s: sy.State) -> None:
        if s.sample("flag", dist.Bernoulli(0.001)) == 1:
            s.sample("z", dist.Normal(0.0, 1.0))

    out = universal(sy.rename(seldom, {"z": "w"}), particles=3)
    assert list(out.trace) == ["flag"]


def test_previous_versions_by_name_or_by_hand() -> None:
    """A trace that was written by hand, or read from a file, has plain strings for addresses."""
    for address in (sy.previous("a"), f"a{MARK}"):
        out = run(sy.prev(pair), particles=2, given={address: jnp.array([1.0, 2.0])})
        np.testing.assert_array_equal(out.value, [1.0, 2.0])


def test_prev_renames_observed_variables_too() -> None:
    out = run(sy.prev(sy.prev(pair)), particles=2)
    assert set(out.trace) == {sy.previous(sy.previous("a")), sy.previous(sy.previous("b"))}
    assert set(out.log_density) - set(out.trace) == {sy.previous(sy.previous("x"))}
