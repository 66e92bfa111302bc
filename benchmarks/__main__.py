"""`python -m benchmarks`: every benchmark, or those named; a table of ratios for each as soon as it is done."""

import argparse
import importlib

from rich.console import Console

from benchmarks.measure import table

# Modules with a function `run`. Each is imported when it runs: only some need what they compare with to be installed.
BENCHMARKS = (
    "importance",
    "filtering",
    "training",
    "loop",
    "ring",
    "mixture",
    "chain",
    "volatility",
    "tempering",
    "tracking",
    "digits",
    "passes",
    "growth",
    "adapted",
    "devices",
    "networks",
)


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
            result = importlib.import_module(f"benchmarks.{name}").run()
        console.print(table(name, result) if isinstance(result, list) else result)


if __name__ == "__main__":
    main()
