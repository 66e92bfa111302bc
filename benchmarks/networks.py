"""What a resampling sends, by a formula that a test compares with compiled programs; how long that takes on networks.

`python -m benchmarks networks` prints the table of docs/scaling.md.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from steelyard.devices.exchange import message_size

# Bytes of a number; of most kinds four.
WIDTHS = {"pred": 1, "u8": 1, "s64": 8, "u64": 8, "f64": 8}
# Of each particle that is sent: its slot and its index.
ALONG = 8
# What every device tells all others in one resampling, in bytes. By device: the sum of its weights, two words; its last
# slot; how many particles go to each other device, in two ranges; in how many messages. Once: the digits of the sum of
# weights, whether there is NaN, the largest weight twice, and how many ancestors there are.
BY_DEVICE, ONCE = 4 * (2 + 1 + 2 + 1), 4 * (8 + 1 + 2 + 1)
# How many times devices wait for all others, to send these numbers; with islands, for what is told of a level.
WAITS, WAITS_OF_ISLANDS = 10, 9
# Of particles whose log weights have standard deviation one, the share that has children, E min(1, w / E w); and to how
# many devices one sends.
SURVIVORS, RECEIVERS = math.erfc(0.5 / math.sqrt(2.0)), 3
PARTICLES, WIDTH = 2**20, 8
DEVICES = (2, 4, 8, 64, 512, 4096)


@dataclass(frozen=True)
class Network:
    """A network: seconds until a message arrives, and bytes a second of one device. Assumptions, not measurements."""

    name: str
    latency: float
    bandwidth: float


NETWORKS = (
    Network("NVLink", 3e-6, 200e9),
    Network("InfiniBand", 5e-6, 25e9),
    Network("Ethernet, 10 Gbit/s", 50e-6, 1.2e9),
)


def others(devices: int) -> int:
    """Return how many bytes of numbers about all devices a resampling sends."""
    return BY_DEVICE * devices + ONCE


def sent(devices: int, particles: int, width: int, survivors: float = SURVIVORS) -> int:
    """Return how many bytes a device sends in one systematic resampling, at most, if weights are spread evenly.

    Args:
        devices: how many devices there are.
        particles: how many particles each has.
        width: how many bytes a particle has.
        survivors: the share of particles that have children.
    """
    message = message_size(particles)
    # The last message to each device is not full; one particle may have children on two devices.
    count = math.ceil(survivors * particles) + RECEIVERS * (message + 1)
    return count * (width + ALONG) + others(devices)


def seconds(network: Network, devices: int, size: int, messages: int, waits: int = WAITS) -> float:
    """Return how long it takes to send so many bytes in so many messages, and to wait for all devices so many times."""
    return (waits * math.ceil(math.log2(devices)) + messages) * network.latency + size / network.bandwidth


def collectives(compiled: Any) -> tuple[list[int], list[int]]:
    """Return how many bytes the collective operations of a compiled program have: messages, and all others."""
    in_messages, rest = [], []
    # Long tuples are numbered in comments.
    text = re.sub(r"/\*.*?\*/", "", compiled.as_text())
    for shapes, name in re.findall(
        r"= (\(?[^=]*?\)?) (all-\w+(?:-\w+)*|reduce-scatter|collective-\w+)(?:-start)?\(", text
    ):
        count = sum(
            math.prod(int(n) for n in dims.split(",") if n) * WIDTHS.get(kind, 4)
            for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
        )
        (in_messages if name == "collective-permute" else rest).append(count)
    return in_messages, rest


def rows() -> list[tuple[str, ...]]:
    """Return for each number of devices the bytes, and the time by network of all together and of islands."""
    found = []
    for devices in DEVICES:
        size = sent(devices, PARTICLES, WIDTH)
        # Messages of a device: the slots, the indices, and the particles.
        messages = 3 * (math.ceil(SURVIVORS * PARTICLES / message_size(PARTICLES)) + RECEIVERS)
        together = (seconds(network, devices, size, messages) for network in NETWORKS)
        apart = (seconds(network, devices, 4 * devices, 0, WAITS_OF_ISLANDS) for network in NETWORKS)
        times = (f"{1e3 * a:.2g} / {1e3 * b:.2g}" for a, b in zip(together, apart, strict=True))
        found.append((f"{devices:,}", f"{size / 1e6:.1f} MB", *times))
    return found


def markdown() -> str:
    """Return the table as it is in the documentation."""
    heads = ("devices", "sent by each", *(f"{network.name}, ms" for network in NETWORKS))
    lines = [heads, ("---",) * len(heads), *rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run() -> Table:
    """Return the table, for a terminal."""
    title = f"one resampling of {PARTICLES:,} particles a device, {WIDTH} bytes each: all together / in islands"
    table = Table("devices", "sent by each", *(f"{n.name}, ms" for n in NETWORKS), title=title)
    for row in rows():
        table.add_row(*row)
    return table
