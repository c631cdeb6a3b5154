"""Size of the package, and how many of its files a row passes on its way.

    python studies/shape.py [--json]

Lines of code are lines with a statement or part of one: blank lines, comments and docstrings do not
count. A file is passed when one of its functions is called; modules that are only imported do not
count.
"""

import argparse
import ast
import io
import json
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import wri

SOURCE = Path(wri.__file__).parent
QUIET = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def count_lines(text: str) -> int:
    """Lines of code of a module."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            found.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(found)


def name_of(path: Path) -> str:
    """Dotted name of a module."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def count_importers(texts: dict[str, str]) -> Counter[str]:
    """By module, the number of other modules that import it or from it."""
    found: Counter[str] = Counter()
    for own, text in texts.items():
        used = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module)
                used |= {f"{node.module}.{alias.name}" for alias in node.names}
        found.update(name for name in used if name in texts and name != own)
    return found


def measure_size() -> dict[str, Any]:
    """Lines by package, files, classes, modules with one importer."""
    texts = {name_of(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    lines = {name: count_lines(text) for name, text in texts.items()}
    packages: Counter[str] = Counter()
    for name, count in lines.items():
        packages[".".join(name.split(".")[:2])] += count
    importers = count_importers(texts)
    classes = sum(
        isinstance(node, ast.ClassDef)
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
    )
    return {
        "lines of code": sum(lines.values()),
        "of them the paper's": packages["wri.paper"],
        "files": len(texts),
        "classes": classes,
        "modules with one importer": sum(importers[name] == 1 for name in texts),
        "modules under 45 lines": sum(0 < count < 45 for count in lines.values()),
        "packages": dict(packages.most_common()),
    }


def passed(work: Callable[[], Any]) -> tuple[int, int]:
    """Files and functions of the package that are called."""
    files: set[str] = set()
    functions: set[tuple[str, int]] = set()
    own = str(SOURCE)

    def see(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(own) and code.co_name != "<module>":
            files.add(code.co_filename)
            functions.add((code.co_filename, code.co_firstlineno))

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len(files), len(functions)


def run_command(*arguments: str) -> None:
    """Run `wri` in this process."""
    from wri.cli import main

    before = sys.argv
    sys.argv = ["wri", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before


def measure_ways() -> dict[str, tuple[int, int]]:
    """Files and functions passed by the usual calls."""
    from wri import WRIClassifier
    from wri.datasets import hospitals, joined

    x, y, site = joined(hospitals(200, seed=0))
    model = WRIClassifier()
    found = {
        "WRIClassifier.fit": passed(lambda: model.fit(x, y, groups=site)),
        "predict": passed(lambda: model.predict(x)),
    }
    with tempfile.TemporaryDirectory() as folder:
        rows, place = f"{folder}/hospitals.csv", f"{folder}/model"
        passed(lambda: run_command("data", "hospitals", "--write", rows))  # prints nothing
        fit = ("fit", rows, "--target", "sick", "--env", "hospital", "-o", place)
        found["wri fit"] = passed(lambda: run_command(*fit, "--predictors", "linear"))
        sweep = ("sweep", "--data", rows, "--target", "sick", "--env", "hospital")
        sweep += ("--algorithms", "wri", "--draws", "1", "--trials", "1")
        found["wri sweep, one run per hospital"] = passed(
            lambda: run_command(*sweep, "--store", f"{folder}/store.db")
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    found = measure_size() | {"files, functions": measure_ways()}
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name}: {json.dumps(value, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
