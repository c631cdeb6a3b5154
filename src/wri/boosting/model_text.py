"""LightGBM's text form of a forest, read and checked before LightGBM's own parser sees it.

A saved model may come from anybody, and LightGBM's parser trusts its text: a child or a column out
of range is an access out of bounds. So the text is taken apart here, every number is checked, and
what goes to LightGBM is written anew from what was understood: a header and trees, no parameters,
no names of files. Every tree must be one: from the root each node and each leaf is reached once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan
from typing import Literal

from wri.errors import InputError

MOST_BYTES = 2**25  # of all forests of a model
MOST_TREES = 50_000
MOST_LEAVES = 2**17
END = "end of trees"
PLAIN = re.compile(r"[-+.0-9eEinfa ]*")  # letters of numbers, infinity and NaN among them

Length = Literal["one", "leaves", "nodes", "bounds", "words"]

FIELDS: Mapping[str, tuple[type, Length]] = {
    "num_leaves": (int, "one"),
    "num_cat": (int, "one"),
    "split_feature": (int, "nodes"),
    "split_gain": (float, "nodes"),
    "threshold": (float, "nodes"),
    "decision_type": (int, "nodes"),
    "left_child": (int, "nodes"),
    "right_child": (int, "nodes"),
    "leaf_value": (float, "leaves"),
    "leaf_weight": (float, "leaves"),
    "leaf_count": (int, "leaves"),
    "internal_value": (float, "nodes"),
    "internal_weight": (float, "nodes"),
    "internal_count": (int, "nodes"),
    "cat_boundaries": (int, "bounds"),
    "cat_threshold": (int, "words"),
    "is_linear": (int, "one"),
    "shrinkage": (float, "one"),
}
"""The lines of a tree, in LightGBM's order, with the kind and the number of their values."""

SPLIT = {"split_feature", "threshold", "decision_type", "left_child", "right_child"}
CATEGORICAL = 1  # bit of a decision type
LARGEST_DECISION = 15


@dataclass(frozen=True)
class ForestText:
    """A checked forest."""

    text: str  # what LightGBM is given
    n_trees: int


def clean_forest(text: str, n_features: int, n_outputs: int) -> ForestText:
    """Check a forest's text and write it anew.

    Parameters
    ----------
    text
        As `lightgbm.Booster.model_to_string` writes it, or as this function does.
    n_features, n_outputs
        Columns that it may split on, and scores per row.
    """
    if len(text) > MOST_BYTES:
        raise InputError(f"the forest has {len(text)} characters; at most {MOST_BYTES} are read")
    trees = [
        _clean_tree(number, fields, n_features) for number, fields in enumerate(_read_trees(text))
    ]
    if not trees or len(trees) % n_outputs:
        raise InputError(
            f"the forest has {len(trees)} trees; it needs some for each of {n_outputs} scores"
        )
    names = " ".join(f"Column_{column}" for column in range(n_features))
    header = [
        "tree",
        "version=v4",
        f"num_class={n_outputs}",
        f"num_tree_per_iteration={n_outputs}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        f"feature_names={names}",
        f"feature_infos={' '.join(['none'] * n_features)}",
        "",
    ]
    lines = [*header, *(line for tree in trees for line in tree), END, ""]
    return ForestText("\n".join(lines), len(trees))


def _read_trees(text: str) -> Iterator[dict[str, str]]:
    """The lines of every tree by name."""
    lines = iter(text.splitlines())
    if next(lines, "") != "tree":
        raise InputError("the forest does not begin as LightGBM writes it")
    if f"\n{END}\n" not in text:
        raise InputError("the forest has no end; the file is cut")
    fields: dict[str, str] | None = None
    count = 0
    for line in lines:
        if line == END:
            break
        name, equals, values = line.partition("=")
        if name == "Tree":
            if fields is not None:
                yield fields
            fields, count = {}, count + 1
            if values != str(count - 1) or count > MOST_TREES:
                raise InputError(f"tree {count - 1} of the forest is out of order, or one too many")
        elif fields is not None and equals:
            if name not in FIELDS or name in fields:
                raise InputError(
                    f"tree {count - 1} of the forest has {name[:40]!r} twice or unknown"
                )
            fields[name] = values
        elif fields is not None and line:
            raise InputError(f"tree {count - 1} of the forest has a line that says nothing")
    if fields is not None:
        yield fields


def _clean_tree(number: int, fields: Mapping[str, str], n_features: int) -> list[str]:
    """The lines of a tree after every check."""
    where = f"tree {number} of the forest"
    read = {name: _read_numbers(name, values, where) for name, values in fields.items()}
    leaves = _one(read, "num_leaves", where)
    categories = _one(read, "num_cat", where)
    if not 1 <= leaves <= MOST_LEAVES or not 0 <= categories < leaves:
        raise InputError(f"{where} has {leaves} leaves and {categories} splits by category")
    if _one(read, "is_linear", where) != 0:
        raise InputError(f"{where} has linear leaves, which are not read")
    bounds = read.get("cat_boundaries", [])
    lengths: dict[Length, int] = {
        "one": 1,
        "leaves": leaves,
        "nodes": leaves - 1,
        "bounds": categories + 1 if categories else 0,
        "words": int(bounds[-1]) if bounds else 0,
    }
    needed = SPLIT if leaves > 1 else set()
    sets = {"cat_boundaries", "cat_threshold"} if categories else set()
    if missing := sorted(({"leaf_value"} | needed | sets) - set(read)):
        raise InputError(f"{where} lacks {', '.join(missing)}")
    for name, values in read.items():
        if len(values) != lengths[FIELDS[name][1]]:
            raise InputError(f"{where}: {name} has {len(values)} values, which does not fit")
    if leaves > 1:
        _check_splits(read, n_features, categories, where)
        _check_children(read, leaves, where)
    kept = [f"{name}={fields[name]}" for name in FIELDS if name in fields]
    return [f"Tree={number}", *kept, "", ""]


def _read_numbers(name: str, values: str, where: str) -> list[float]:
    kind = FIELDS[name][0]
    if PLAIN.fullmatch(values) is None:  # Python reads 1_0 as a number, LightGBM as another one
        raise InputError(f"{where}: {name} holds something else than numbers")
    try:
        numbers = [kind(value) for value in values.split(" ")] if values else []
    except ValueError as error:
        raise InputError(f"{where}: {name} holds something else than numbers") from error
    # LightGBM parts missing values from all others by a threshold of infinity
    finite = kind is int or all(map(isfinite, numbers))
    if not finite and (name != "threshold" or any(map(isnan, numbers))):
        raise InputError(f"{where}: {name} holds a number that is not finite")
    return numbers


def _one(read: Mapping[str, list[float]], name: str, where: str) -> int:
    values = read.get(name, [])
    if len(values) != 1:
        raise InputError(f"{where} must have one {name}")
    return int(values[0])


def _check_splits(
    read: Mapping[str, list[float]], n_features: int, categories: int, where: str
) -> None:
    """Columns, decisions and sets of categories within their ranges."""
    if not all(0 <= column < n_features for column in read["split_feature"]):
        raise InputError(f"{where} splits on a column that the model does not have")
    if not all(0 <= kind <= LARGEST_DECISION for kind in read["decision_type"]):
        raise InputError(f"{where} has an unknown kind of decision")
    for kind, threshold in zip(read["decision_type"], read["threshold"], strict=True):
        if int(kind) & CATEGORICAL and not (
            0 <= threshold < categories and threshold == int(threshold)
        ):
            raise InputError(f"{where} splits by a set of categories that it does not have")
    bounds = read.get("cat_boundaries", [])
    if any(later <= earlier for earlier, later in pairwise(bounds)) or (bounds and bounds[0] != 0):
        raise InputError(f"{where} has sets of categories that overlap")
    if not all(0 <= word < 2**32 for word in read.get("cat_threshold", [])):
        raise InputError(f"{where} has a set of categories out of range")


def _check_children(read: Mapping[str, list[float]], leaves: int, where: str) -> None:
    """From the root every node and every leaf is reached, once."""
    left, right = read["left_child"], read["right_child"]
    seen_nodes: set[int] = {0}
    seen_leaves: set[int] = set()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        for child in (int(left[node]), int(right[node])):
            inner = child >= 0
            place = child if inner else -child - 1
            seen, limit = (seen_nodes, leaves - 1) if inner else (seen_leaves, leaves)
            if place >= limit or place in seen:
                raise InputError(f"{where} has branches that do not form a tree")
            seen.add(place)
            if inner:
                waiting.append(place)
    if len(seen_nodes) != leaves - 1 or len(seen_leaves) != leaves:
        raise InputError(f"{where} has parts that its root does not reach")
