"""LightGBM's text form of a forest, read and checked before LightGBM's own parser sees it.

A saved model may come from anybody, and LightGBM's parser trusts its text: a child or a column out
of range is an access out of bounds. So the text is taken apart here, every number is checked, and
what goes to LightGBM is written anew from what was understood: a header and trees, no parameters,
no names of files. Every tree must be one: from the root each node and each leaf is reached once.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile
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
SETS = {"cat_boundaries", "cat_threshold"}
CATEGORICAL = 1  # bit of a decision type
LARGEST_DECISION = 15


def clean_forest(text: str, n_features: int, n_outputs: int) -> str:
    """Check a forest's text, as LightGBM or this function writes it, and write it anew."""
    size = len(text)
    _require(size <= MOST_BYTES, f"the forest has {size} characters; at most {MOST_BYTES} are read")
    trees = [
        _clean_tree(number, fields, n_features) for number, fields in enumerate(_read_trees(text))
    ]
    _require(
        len(trees) > 0 and len(trees) % n_outputs == 0,
        f"the forest has {len(trees)} trees; it needs some for each of {n_outputs} scores",
    )
    header = [
        "tree",
        "version=v4",
        f"num_class={n_outputs}",
        f"num_tree_per_iteration={n_outputs}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        f"feature_names={' '.join(f'Column_{column}' for column in range(n_features))}",
        f"feature_infos={' '.join(['none'] * n_features)}",
        "",
    ]
    return "\n".join([*header, *(line for tree in trees for line in tree), END, ""])


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InputError(otherwise)


def _read_trees(text: str) -> Iterator[dict[str, str]]:
    """The lines of every tree by name."""
    lines = iter(text.splitlines())
    _require(next(lines, "") == "tree", "the text does not begin like a forest of LightGBM")
    _require(f"\n{END}\n" in text, "the forest has no end; the text was cut off")
    fields: dict[str, str] | None = None
    count = 0
    for line in takewhile(lambda line: line != END, lines):
        name, equals, values = line.partition("=")
        where = f"tree {count - 1} of the forest"
        if name == "Tree":
            if fields is not None:
                yield fields
            fields, count = {}, count + 1
            right = values == str(count - 1) and count <= MOST_TREES
            _require(right, f"tree {count - 1} of the forest is out of order, or one too many")
        elif fields is not None and line:
            _require(equals == "=", f"{where} has an unrecognised line")
            right = name in FIELDS and name not in fields
            _require(right, f"{where} has an unknown or repeated entry {name[:40]!r}")
            fields[name] = values
    if fields is not None:
        yield fields


def _clean_tree(number: int, fields: Mapping[str, str], n_features: int) -> list[str]:
    """The lines of a tree after every check."""
    where = f"tree {number} of the forest"
    read = {name: _read_numbers(name, values, where) for name, values in fields.items()}
    for name in ("num_leaves", "num_cat", "is_linear"):
        _require(len(read.get(name, ())) == 1, f"{where} must have one {name}")
    leaves, categories = int(read["num_leaves"][0]), int(read["num_cat"][0])
    right = 1 <= leaves <= MOST_LEAVES and 0 <= categories < leaves
    _require(
        right,
        f"{where} has {leaves} leaves and {categories} splits by category, which is impossible",
    )
    _require(read["is_linear"] == [0], f"{where} has linear leaves, which are not read")
    bounds = read.get("cat_boundaries", [])
    lengths: dict[Length, int] = {
        "one": 1,
        "leaves": leaves,
        "nodes": leaves - 1,
        "bounds": categories + 1 if categories else 0,
        "words": int(bounds[-1]) if bounds else 0,
    }
    needed = {"leaf_value", *(SPLIT if leaves > 1 else ()), *(SETS if categories else ())}
    missing = ", ".join(sorted(needed - set(read)))
    _require(not missing, f"{where} lacks {missing}")
    for name, values in read.items():
        right = len(values) == lengths[FIELDS[name][1]]
        _require(right, f"{where}: {name} has {len(values)} values, which does not fit its leaves")
    if leaves > 1:
        _check_splits(read, n_features, categories, where)
        _check_children(read, leaves, where)
    kept = [f"{name}={fields[name]}" for name in FIELDS if name in fields]
    return [f"Tree={number}", *kept, "", ""]


def _read_numbers(name: str, values: str, where: str) -> list[float]:
    kind = FIELDS[name][0]
    try:
        # Python reads 1_0 as a number, LightGBM as another one
        plain = PLAIN.fullmatch(values) is not None
        numbers = [kind(value) for value in values.split(" ")] if plain and values else []
    except ValueError:
        plain = False
    _require(plain, f"{where}: {name} contains non-numeric values")
    # LightGBM parts missing values from all others by a threshold of infinity
    finite = kind is int or all(map(isfinite, numbers))
    split_off = name == "threshold" and not any(map(isnan, numbers))
    _require(finite or split_off, f"{where}: {name} holds a number that is not finite")
    return numbers


def _check_splits(
    read: Mapping[str, list[float]], n_features: int, categories: int, where: str
) -> None:
    """Columns, decisions and sets of categories within their ranges."""
    inside = all(0 <= column < n_features for column in read["split_feature"])
    _require(inside, f"{where} splits on a column that the model does not have")
    known = all(0 <= kind <= LARGEST_DECISION for kind in read["decision_type"])
    _require(known, f"{where} has an unknown kind of decision")
    for kind, threshold in zip(read["decision_type"], read["threshold"], strict=True):
        inside = 0 <= threshold < categories and threshold == int(threshold)
        right = inside or not int(kind) & CATEGORICAL
        _require(right, f"{where} splits by a set of categories that it does not have")
    bounds = read.get("cat_boundaries", [])
    apart = all(earlier < later for earlier, later in pairwise(bounds)) and bounds[:1] in ([], [0])
    _require(apart, f"{where} has sets of categories that overlap")
    inside = all(0 <= word < 2**32 for word in read.get("cat_threshold", []))
    _require(inside, f"{where} has a set of categories out of range")


def _check_children(read: Mapping[str, list[float]], leaves: int, where: str) -> None:
    """From the root every node and every leaf is reached, once."""
    seen = {0}  # nodes from 0, leaves from −1 downwards
    waiting = [0]
    while waiting:
        node = waiting.pop()
        for child in (int(read["left_child"][node]), int(read["right_child"][node])):
            right = -leaves <= child < leaves - 1 and child not in seen
            _require(right, f"{where} has branches that do not form a tree")
            seen.add(child)
            if child >= 0:
                waiting.append(child)
    _require(len(seen) == 2 * leaves - 1, f"{where} has nodes that its root does not reach")
