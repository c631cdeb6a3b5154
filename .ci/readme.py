"""Run README's Python and command-line blocks with the installed package, in an empty folder.

`make dist` calls it in an environment that has the wheel, what the wheel requires, and nothing
else. Only the page and the comparison of what it prints come from the work tree.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
sys.path.insert(0, str(ROOT / "tests"))

from pages import check_same, python_blocks  # noqa: E402

WHERE = "import wri; print(wri.__file__)"


def main() -> None:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    shells = [block for language, block in fenced if not language and block.startswith("wri ")]
    blocks = python_blocks(README)
    if not (blocks and shells):
        sys.exit("README.md has no block of Python, or none of the command line")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(*command: str, **settings: object) -> str:
        settings |= {"cwd": folder, "env": environment, "text": True}
        done = subprocess.run(command, check=True, **settings)
        return done.stdout or ""

    with TemporaryDirectory() as folder:
        where = run(sys.executable, "-c", WHERE, stdout=subprocess.PIPE).strip()
        if not where.startswith(sys.prefix):
            sys.exit(f"wri is imported from {where}, not from {sys.prefix}")
        for code, shown in blocks:
            printed = run(sys.executable, "-c", code, stdout=subprocess.PIPE)
            check_same(printed, shown or "")
            print(printed, end="", flush=True)
        for block in shells:
            run("bash", "-exc", block)
        made = ", ".join(sorted(os.listdir(folder)))
    print(f"README: {len(blocks)} Python and {len(shells)} command-line blocks ran; made {made}")


if __name__ == "__main__":
    main()
