"""Tables of benchmarks as the pages of docs/results show them."""

from collections.abc import Iterable, Sequence


def print_table(title: str, heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table below its title."""
    print(f"*{title}*\n")
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for cells in lines:
        print(f"| {' | '.join(cells)} |")
    print(flush=True)
