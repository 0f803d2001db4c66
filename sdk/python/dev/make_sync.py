"""Makes src/berth/_sync of src/berth/_async: the same code without async and await.

    python dev/make_sync.py            writes the files
    python dev/make_sync.py --check    says which files are not as they would be written
"""

from __future__ import annotations

import pathlib
import re
import sys

PACKAGE = pathlib.Path(__file__).parent.parent / "src" / "berth"
BY_HAND = "_io.py"  # what differs in more than words

HEAD = "# Made by dev/make_sync.py of ../_async/{name}; do not edit.\n"

WORDS = [
    (r"AsyncGenerator\[((?:[^\[\]]|\[[^\[\]]*\])+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (?=def |with |for )", ""),
    (r"\bawait ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclos(e|ing)\b", r"clos\1"),
    (r"\baread\b", "read"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\banext\(", "next("),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ban (?=Command\b|Pty\b)", "a "),
    (r"asynchronous client", "client"),
]


def synchronous(source: str, name: str) -> str:
    for pattern, word in WORDS:
        source = re.sub(pattern, word, source)
    return HEAD.format(name=name) + source


def main() -> None:
    stale: list[str] = []
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name == BY_HAND:
            continue
        target = PACKAGE / "_sync" / source.name
        text = synchronous(source.read_text(), source.name)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            stale.append(str(target.relative_to(PACKAGE)))
    if stale:
        sys.exit(f"{', '.join(stale)}: run `python dev/make_sync.py`")


if __name__ == "__main__":
    main()
