"""Run the laws on new programs, as many as asked for: `make laws EXAMPLES=20000`.

Each example has a number, and is made of the seed and that number alone, so that any of them can be run again.
Processes are replaced now and then, for JAX keeps everything that it ever compiled.
"""

import argparse
import multiprocessing
import os
import secrets
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

CHUNK = 5  # examples in a task
TASKS = 30  # tasks of a process
RUNS = 1000


class Report(NamedTuple):
    """What became of one example: what was in it, and the laws that it broke."""

    number: int
    features: frozenset[str]
    failures: tuple[str, ...]


def main() -> int:
    """Run the laws and return how many examples broke one, at most 1."""
    parser = argparse.ArgumentParser(prog="make laws", description=__doc__)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="a new one each time, if not given")
    parser.add_argument("--only", type=int, default=None, help="the number of a single example")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    numbers = range(options.examples) if options.only is None else range(options.only, options.only + 1)
    print(f"{len(numbers)} examples, SEED={seed}", flush=True)

    seen: Counter[str] = Counter()
    done, broken, start = 0, [], time.monotonic()
    try:
        for report in _reports(seed, numbers, options.processes):
            done += 1
            seen.update(report.features)
            if report.failures:
                broken.append(report.number)
                print(f"\nexample {report.number}: make laws SEED={seed} ONLY={report.number}\n")
                print(*report.failures, sep="\n\n", flush=True)
            _show(done, len(numbers), len(broken), start)
    except KeyboardInterrupt:
        print("\ninterrupted", end="")
    _summary(seed, done, broken, seen, start)
    return int(bool(broken) or done < len(numbers))


def _reports(seed: int, numbers: range, processes: int) -> Iterator[Report]:
    tasks = [(seed, numbers[i : i + CHUNK]) for i in range(0, len(numbers), CHUNK)]
    if len(tasks) == 1:
        _prepare()
        yield from _task(tasks[0])
        return
    # A process that is forked would share JAX's threads.
    with multiprocessing.get_context("spawn").Pool(processes, _prepare, maxtasksperchild=TASKS) as pool:
        for reports in pool.imap_unordered(_task, tasks):
            yield from reports


def _prepare() -> None:
    """Set a process up: an interruption is for the first one; small programs are not worth optimising."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    flags = (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
    )
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))


def _task(task: tuple[int, range]) -> list[Report]:
    seed, numbers = task
    return [check(seed, number) for number in numbers]


def check(seed: int, number: int) -> Report:
    """Try every law on one example."""
    # Not before XLA_FLAGS are set.
    from tests.laws.coverage import counting_reuse, features
    from tests.laws.laws import LAWS
    from tests.laws.strategies import example_from, smallest_part

    rng = Random(f"{seed}/{number}")
    example = example_from(rng, rng.randint(1, 3), runs=RUNS, repeats=rng.random() < 0.25)
    failures = []
    with counting_reuse() as reused:
        for name, law in LAWS.items():
            if (problem := _problem(law, example, number)) is not None:
                part = smallest_part(example, lambda part: _problem(law, part, number) is not None)  # noqa: B023
                failures.append(
                    f"{name}: {_problem(law, part, number) or problem}\nThe smallest part that fails:\n{part}"
                )
        happened = {"a density was reused"} if reused() else set()
    return Report(number, features(example) | happened, tuple(failures))


def _problem(law: Any, example: Any, number: int) -> str | None:
    try:
        law(example, number % 100)
    except Exception:  # noqa: BLE001
        return traceback.format_exc(limit=-3)
    return None


def _show(done: int, total: int, broken: int, start: float) -> None:
    elapsed = time.monotonic() - start
    line = f"{done} of {total}, {broken} broken, {elapsed:.0f} s, {(total - done) * elapsed / done:.0f} s left"
    if sys.stdout.isatty():
        print(f"\r{line}   ", end="", flush=True)
    elif done % 100 == 0:
        print(line, flush=True)


def _summary(seed: int, done: int, broken: list[int], seen: Counter[str], start: float) -> None:
    from tests.laws.coverage import EVERYTHING

    print(f"\n{done} examples in {time.monotonic() - start:.0f} s, SEED={seed}: {len(broken)} broke a law")
    if rare := sorted(feature for feature in (*EVERYTHING, "a density was reused") if not seen[feature]):
        print(f"Not among them: {', '.join(rare)}")
    for number in sorted(broken):
        print(f"  make laws SEED={seed} ONLY={number}")


if __name__ == "__main__":
    sys.exit(main())
