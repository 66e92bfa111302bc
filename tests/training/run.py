"""A training run as a process of its own, which the tests kill and interrupt.

python -m tests.training.run --out FILE [--checkpoint DIRECTORY] [--pause SECONDS]
"""

import argparse
import signal
import time
from pathlib import Path

import numpy as np

import steelyard as sy
from steelyard.training import train as module
from tests.training.programs import network_run

STEPS = 120


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--pause", type=float, default=0.0, help="after every few steps: the time to interrupt it in")
    given = parser.parse_args()

    def callback(result: sy.TrainResult) -> None:
        print(len(result.history), flush=True)
        time.sleep(given.pause)

    # A few steps at a time, and a checkpoint after each: there are many moments to be killed in.
    module.MOST_STEPS_AT_ONCE = 4
    result = network_run(steps=STEPS, checkpoint=given.checkpoint, checkpoint_seconds=-1.0, callback=callback)
    history = {name: x for name, x in vars(result.history).items() if x is not None}
    np.savez(given.out, **result.models, **history, interrupted=np.asarray(result.interrupted))


if __name__ == "__main__":
    # A shell that starts tests in the background ignores Ctrl-C, and its children would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
