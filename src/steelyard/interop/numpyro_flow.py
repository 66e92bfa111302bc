"""NumPyro's control flow, `scan` and `cond`: values are proposed or drawn where the flow needs them."""

from collections.abc import Callable
from typing import Any

import jax
from numpyro.contrib.control_flow.cond import cond_wrapper
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.primitives import Messenger

from steelyard.compiler.draws import draw
from steelyard.errors import ArgumentError
from steelyard.interop.numpyro_rows import sample_row
from steelyard.language.state import State

_SAMPLED = "sampled by steelyard as"


class Flow:
    """Runs control flow. NumPyro then shows each of its sites again, with the values of all steps together."""

    def __init__(self, s: State, place: str) -> None:
        self._s = s
        self._place = place

    def has_sampled(self, msg: dict[str, Any]) -> bool:
        """Tell whether the value of a site comes from here; raise `ArgumentError` if it had another name then."""
        name = msg["infer"].get(_SAMPLED)
        if name not in (None, msg["name"]):
            raise ArgumentError(
                f"{self._place}: {name!r} was sampled inside of control flow, and a handler around it renames it to "
                f"{msg['name']!r}. Put the handler, such as scope, inside of the function that scan or cond is given."
            )
        return name is not None

    def run(self, msg: dict[str, Any]) -> Any:
        """Return the result of a scan or cond."""
        fn, args, kwargs = msg["fn"], msg["args"], dict(msg["kwargs"])
        if fn is scan_wrapper:
            f, init, xs, length, reverse = args
            steps = jax.tree.leaves(xs)[0].shape[0] if length is None else length
            inside = _Inside("scan", self._place)
            site = self._sampler(lambda i: steps - 1 - i if reverse else i)
            args = inside.around(f), init, xs, length, reverse
        elif fn is cond_wrapper:
            pred, true_fun, false_fun, operand = args
            inside = _Inside("cond", self._place)
            site = self._sampler(lambda i: None)
            args = pred, inside.around(true_fun), inside.around(false_fun), operand
        else:
            raise ArgumentError(
                f"{self._place}: the control flow {getattr(fn, '__name__', fn)!r} is not known. Use scan or cond of "
                f"numpyro.contrib.control_flow, or write the loop out."
            )
        kwargs["substitute_stack"] = [*kwargs["substitute_stack"], ("substitute", site)]
        # Sites are drawn by the state, so that no key is needed.
        kwargs["rng_key"] = None
        try:
            return fn(*args, **kwargs)
        except TypeError as error:
            if fn is scan_wrapper or isinstance(error, ArgumentError):
                raise
            raise ArgumentError(
                f"{self._place}: the branches of cond do not fit together. Both must have the same sites, each with "
                f"distributions of one class and shape, and return values of one shape. Else write a program with "
                f"s.when(flag) for each branch."
            ) from error
        except AssertionError as error:
            # NumPyro would draw what is missing without showing it.
            raise ArgumentError(
                f"{self._place}: a site of the scan has values for some of its steps only. Give it values for all "
                f"steps, and sample the others in a scan of their own."
            ) from error

    def _sampler(self, row: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
        def value(site: dict[str, Any]) -> Any:
            if site["type"] != "sample" or site["value"] is not None:
                return None
            # NumPyro hands this on to where it shows the site again.
            site["infer"] = {**site["infer"], _SAMPLED: site["name"]}
            shape = site["kwargs"].get("sample_shape")
            fn = site["fn"].expand_by(shape) if shape else site["fn"]
            return sample_row(self._s, site["name"], fn, row(site["infer"].get("_scan_current_index")), draw)

        return value


class _Inside(Messenger):
    """Refuses what NumPyro hides from a handler around the control flow, and would do silently."""

    def __init__(self, kind: str, place: str) -> None:
        super().__init__()
        self._kind = kind
        self._place = place

    def around(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs f under this handler."""

        def inside(*args: Any) -> Any:
            with self:
                return f(*args)

        return inside

    def process_message(self, msg: dict[str, Any]) -> None:
        """Raise `ArgumentError` at a site that cannot be inside of control flow."""
        name, remedy = repr(msg.get("name")), None
        match msg["type"]:
            case "control_flow":
                name, remedy = "control flow", "Write the inner or the outer one out as a loop of Python"
            case "prng_key" if msg["kwargs"]["rng_key"] is None:
                name, remedy = "prng_key", f"Take keys before the {self._kind}, and sites out of block"
            case "plate" if msg["value"] is None:
                remedy = f"Subsample before the {self._kind}, and index the data with it"
            case "param" if msg["value"] is None:
                remedy = f"Call numpyro.param or the module before the {self._kind}"
            case "mutable":
                remedy = "Leave the state out"
        if remedy is not None:
            raise ArgumentError(f"{self._place}: {name} cannot be inside of a {self._kind}. {remedy}.")
