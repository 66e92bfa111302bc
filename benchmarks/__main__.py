"""`python -m benchmarks`: every benchmark, or those named; a table of ratios for each as soon as it is done."""

import argparse
from collections.abc import Callable

from rich.console import Console

from benchmarks import (
    chain,
    digits,
    filtering,
    importance,
    loop,
    mixture,
    passes,
    ring,
    tempering,
    tracking,
    training,
    volatility,
)
from benchmarks.measure import Row, table

BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "importance": importance.run,
    "filtering": filtering.run,
    "training": training.run,
    "loop": loop.run,
    "ring": ring.run,
    "mixture": mixture.run,
    "chain": chain.run,
    "volatility": volatility.run,
    "tempering": tempering.run,
    "tracking": tracking.run,
    "digits": digits.run,
    "passes": passes.run,
}


def main() -> None:
    """Run benchmarks and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all, if none is named")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
    console = Console()
    for name in names or BENCHMARKS:
        with console.status(f"{name} ..."):
            rows = BENCHMARKS[name]()
        console.print(table(name, rows))


if __name__ == "__main__":
    main()
