"""The count of faults, and its report."""

from collections import Counter

import pytest


@pytest.fixture
def tally(record_property):
    """Count faults for the report: tally("SIGKILL", tried=9, survived=9)."""

    def count(kind, tried, survived):
        record_property("fault", [kind, tried, survived])

    return count


def pytest_terminal_summary(terminalreporter):
    tried = Counter()
    survived = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", []):
                if name == "fault" and report.when == "call":
                    tried[value[0]] += value[1]
                    survived[value[0]] += value[2]
    if tried:
        terminalreporter.section("faults")
        for kind in sorted(tried):
            lost = tried[kind] - survived[kind]
            terminalreporter.line(f"{kind}: tried {tried[kind]}, survived {survived[kind]}, lost {lost}")
