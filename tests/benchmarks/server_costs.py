"""Processor time of servers and their processes, as the kernel counts it."""

from collections.abc import Sequence

import psutil


def cpu_s(pid: int) -> float:
    """Of a process, its children, and those of them that have ended and were waited for."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(_own_s(member) for member in family)


def cpu_of_s(pids: Sequence[int]) -> float:
    return sum(cpu_s(pid) for pid in pids)


def _own_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
