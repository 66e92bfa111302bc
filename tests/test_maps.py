"""Maps and domains: set expressions that hold for each particle."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from steelyard.maps import Domain, Map, both, dom, either, invert, log_product, select

YES, NO = np.array([True, True, False]), np.array([False, True, True])
NAMESPACES = pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])


@NAMESPACES
def test_masks_are_an_algebra_in_which_constants_make_no_arrays(array: Any) -> None:
    m, n = array(YES), array(NO)
    assert both(True, True) is True
    assert both(m, False) is False
    assert both(True, m) is m
    assert both(m, True) is m
    assert invert(True) is False
    assert either(False, False) is False
    assert either(m, True) is True
    np.testing.assert_array_equal(both(m, n), [False, True, False])
    np.testing.assert_array_equal(either(m, n), [True, True, True])
    np.testing.assert_array_equal(either(m, False), YES)
    np.testing.assert_array_equal(invert(m), [False, False, True])


@NAMESPACES
def test_domains_are_subtracted_and_intersected_per_particle(array: Any) -> None:
    first = Domain({"a": True, "b": array(YES), "c": True})
    second = Domain({"a": array(NO), "b": True, "d": True})
    difference, intersection = first - second, first & second
    assert set(difference) == {"a", "c"}
    np.testing.assert_array_equal(difference["a"], [True, False, False])
    assert difference["c"] is True
    assert set(intersection) == {"a", "b"}
    np.testing.assert_array_equal(intersection["a"], NO)
    np.testing.assert_array_equal(intersection["b"], YES)


def test_select_aligns_the_mask_with_the_first_axes() -> None:
    square = jnp.arange(9.0).reshape(3, 3)
    chosen = select(jnp.asarray(YES), {"x": square}, {"x": -square})["x"]
    np.testing.assert_array_equal(chosen, np.where(YES[:, None], square, -square))
    assert select(True, "yes", "no") == "yes"
    assert select(False, "yes", "no") == "no"


@NAMESPACES
def test_the_union_of_maps_with_disjoint_domains(array: Any) -> None:
    first = Map({"a": array([1.0, 2.0, 3.0]), "b": array([4.0, 5.0, 0.0])}, {"b": array(YES)})
    second = Map({"b": array([0.0, 0.0, 6.0]), "c": array([7.0, 8.0, 9.0])}, {"b": array(~YES)})
    for union in (first | second, second | first):
        assert set(union) == {"a", "b", "c"}
        np.testing.assert_array_equal(union["b"], [4.0, 5.0, 6.0])
        np.testing.assert_array_equal(union.present("b"), [True] * 3)
        assert union.present("a") is True
        assert union.present("nowhere") is False


def test_maps_read_like_dictionaries_and_name_what_they_have() -> None:
    m = Map({"a": 1.0, "b": 2.0})
    assert dict(m) == {"a": 1.0, "b": 2.0}
    assert len(m) == 2
    assert repr(m) == "{'a': 1.0, 'b': 2.0}"
    with pytest.raises(KeyError, match="no variable at 'z'; there are 'a', 'b'"):
        m["z"]
    with pytest.raises(KeyError, match="there are none"):
        Map()["z"]


@NAMESPACES
def test_reindexing_renaming_and_restricting_take_masks_along(array: Any) -> None:
    m = Map({"a": array([1.0, 2.0, 3.0]), "b": array([4.0, 5.0, 6.0])}, {"b": array(YES)})
    again = m.reindex(array([2, 0, 0]))
    np.testing.assert_array_equal(again["b"], [6.0, 4.0, 4.0])
    np.testing.assert_array_equal(again.present("b"), [False, True, True])
    renamed = m.rename(str.upper)
    np.testing.assert_array_equal(renamed.present("B"), YES)
    part = m.restrict(Domain({"a": array(NO), "b": True, "z": True}))
    np.testing.assert_array_equal(part.present("a"), NO)
    np.testing.assert_array_equal(part.present("b"), YES)
    assert set(part) == {"a", "b"}
    assert dict(m.of_particle(2)) == {"a": 3.0}
    assert dict(m.of_particle(1)) == {"a": 2.0, "b": 5.0}


@NAMESPACES
def test_the_product_of_densities_over_a_domain(array: Any) -> None:
    rho = Map({"a": array([1.0, 2.0, 3.0]), "b": array([10.0, 20.0, 30.0]), "c": array([100.0] * 3)})
    total = log_product(rho, Domain({"a": True, "b": array(YES)}), array([0.5, 0.5, 0.5]))
    np.testing.assert_allclose(total, [11.5, 22.5, 3.5])
    empty = log_product(rho, Domain(), array([0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(empty, [0.0, 0.0, 0.0])


def test_impossible_densities_outside_of_a_domain_do_not_count() -> None:
    rho = Map({"a": jnp.array([-jnp.inf, 1.0]), "b": jnp.array([jnp.nan, 2.0])})
    mask = jnp.array([False, True])
    total = log_product(rho, Domain({"a": mask, "b": mask}), jnp.zeros(2))
    np.testing.assert_array_equal(total, [0.0, 3.0])


def test_maps_are_trees_with_masks() -> None:
    m = Map({"b": jnp.ones(3), "a": {"x": jnp.zeros(3)}}, {"b": jnp.asarray(YES)})
    doubled = jax.tree.map(lambda x: x + x, m)
    assert list(doubled) == ["a", "b"]
    assert doubled.present("a") is True
    np.testing.assert_array_equal(doubled.present("b"), YES)
    assert dom(jax.jit(lambda x: x)(m)).keys() == {"a", "b"}


@NAMESPACES
def test_values_are_taken_from_ancestors_of_ancestors_when_asked_for(array: Any) -> None:
    x, first, second = array([10.0, 11.0, 12.0, 13.0]), array([3, 0, 0, 2]), array([1, 1, 3])
    m = Map({"a": x, "b": 2 * x}).reindex(first).reindex(second)
    assert m.values_at["a"].values is x
    assert m.values_at["a"].ancestors is m.values_at["b"].ancestors
    assert "a" in m and "c" not in m and m.of_some("a") is x
    np.testing.assert_array_equal(m["a"], [10.0, 10.0, 12.0])
    np.testing.assert_array_equal((m | Map({"c": m["a"]}))["b"], [20.0, 20.0, 24.0])
