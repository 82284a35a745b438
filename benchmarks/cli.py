"""How long `bench --help` takes, as a ratio to an interpreter that does nothing. Run: python benchmarks/cli.py"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15


def median_seconds(argv: list[str]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    floor = median_seconds([sys.executable, "-c", "pass"])
    print(f"{'python -c pass':<18} {floor * 1000:7.1f} ms   1.0 x")
    for flag in ("--help", "--version"):
        took = median_seconds([sys.executable, "-m", "benchflow.cli.app", flag])
        print(f"{'bench ' + flag:<18} {took * 1000:7.1f} ms {took / floor:5.1f} x")


if __name__ == "__main__":
    main()
