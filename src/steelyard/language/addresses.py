"""Addresses name random variables; a variable that was sampled again keeps its old value as a previous version."""

from steelyard.errors import AddressError

MARK = "′"


class Previous(str):
    """The address of the previous version of the variable at `of`."""

    of: str

    def __new__(cls, of: str) -> "Previous":
        self = super().__new__(cls, of + MARK)
        self.of = of
        return self


def previous(address: str) -> Previous:
    """Return the address of the previous version of a variable.

    Args:
        address: the address of the variable, itself a previous version or not.

    Returns:
        The address under which `move` keeps the value that was replaced, and which `prev` samples.

    Example:
        >>> import steelyard as sy
        >>> sy.previous("v")
        'v′'
        >>> sy.previous(sy.previous("v"))
        'v′′'
    """
    return Previous(address)


def variable(address: str) -> str:
    """Return the address of the newest version of the variable that `address` is a version of."""
    return variable(address.of) if isinstance(address, Previous) else address


def versioned(address: str) -> str:
    """Return the address that is written like this: of a previous version, if it ends with the mark."""
    return Previous(versioned(address[:-1])) if address.endswith(MARK) else address


def check_address(address: str, place: str) -> None:
    """Raise `AddressError` unless users may choose this address."""
    if not isinstance(address, str) or not address:
        raise AddressError(
            f"{place}: an address is a non-empty string, got {address!r}. "
            f"The address comes first: s.sample('z', distribution)."
        )
    if MARK in address:
        raise AddressError(
            f"{place}: the address {address!r} contains {MARK!r}, which marks previous versions. "
            f"Choose another name; prev(f) and move(f, q) write the mark for you."
        )
