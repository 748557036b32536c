"""Fetch the pinned browser libraries with npm and write them here with their licences, import map and README.

Run `python static/vendor/update.py` after changing a version below; `--check` only compares what is here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
LANGUAGES = [
    "bash",
    "c",
    "cpp",
    "csharp",
    "css",
    "diff",
    "dockerfile",
    "go",
    "graphql",
    "http",
    "ini",
    "java",
    "javascript",
    "json",
    "kotlin",
    "lua",
    "makefile",
    "markdown",
    "nginx",
    "perl",
    "php",
    "plaintext",
    "powershell",
    "python",
    "r",
    "ruby",
    "rust",
    "scala",
    "sql",
    "swift",
    "typescript",
    "xml",
    "yaml",
]


@dataclass(frozen=True)
class Package:
    """`files` maps what is in the package to (name here, specifier in the import map or "" for none).

    Those in `umd` have no small module build: theirs is wrapped into one.
    """

    name: str
    version: str
    licence: str
    files: dict[str, tuple[str, str]]
    licence_file: str = "LICENSE"
    umd: frozenset[str] = field(default_factory=frozenset)


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        {"dist/preact.mjs": ("preact.js", "preact"), "hooks/dist/hooks.mjs": ("preact-hooks.js", "preact/hooks")},
    ),
    Package("htm", "3.1.1", "Apache-2.0", {"dist/htm.mjs": ("htm.js", "htm")}),
    Package(
        "markdown-it", "15.0.3", "MIT", {"dist/browser/markdown-it.esm.min.mjs": ("markdown-it.js", "markdown-it")}
    ),
    Package(
        "dompurify",
        "3.5.0",
        "MPL-2.0 or Apache-2.0",
        {"dist/purify.min.js": ("dompurify.js", "dompurify")},
        umd=frozenset({"dist/purify.min.js"}),
    ),
    Package(
        "@highlightjs/cdn-assets",
        "11.12.0",
        "BSD-3-Clause",
        {"es/core.min.js": ("highlight/core.js", "highlight")}
        | {
            f"es/languages/{language}.min.js": (f"highlight/{language}.js", f"highlight/{language}")
            for language in LANGUAGES
        },
    ),
)


def module(text: str, *, umd: bool) -> str:
    """`text` as an ES module without a source map's address (the map is not here)."""
    text = re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", text)
    if umd:
        text = (
            f"const module = {{ exports: {{}} }}, exports = module.exports;\n{text}\nexport default module.exports;\n"
        )
    return text


def unpack(package: Package, directory: Path) -> dict[str, str]:
    """The texts to be written for `package`, by name here."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", f"{package.name}@{package.version}"],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
    )
    texts = {}
    with tarfile.open(directory / packed.stdout.strip().splitlines()[-1]) as archive:

        def read(name: str) -> str:
            member = archive.extractfile(f"package/{name}")
            assert member is not None, name
            return member.read().decode()

        for name, (here, _) in package.files.items():
            texts[here] = module(read(name), umd=name in package.umd)
        texts[f"licences/{package.name.strip('@').replace('/', '-')}.txt"] = read(package.licence_file)
    return texts


def import_map() -> str:
    names = {specifier: here for package in PACKAGES for here, specifier in package.files.values() if specifier}
    return json.dumps(names, indent=2) + "\n"


def readme(texts: dict[str, str]) -> str:
    lines = [
        "# Vendored browser libraries",
        "",
        "Unchanged but for the removed address of a source map, and a wrapper that makes DOMPurify a module.",
        "Written by `update.py` from the packages on npm; do not edit by hand. Licences are in `licences/`.",
        "",
        "| package | version | licence | files |",
        "|---|---|---|---|",
    ]
    for package in PACKAGES:
        names = sorted(here for here, _ in package.files.values())
        shown = ", ".join(f"`{name}`" for name in names)
        if len(names) > 3:
            shown = f"`{Path(names[0]).parent}/` ({len(names)})"
        lines.append(f"| {package.name} | {package.version} | {package.licence} | {shown} |")
    lines += ["", "| file | bytes | sha256 |", "|---|---|---|"]
    for name in sorted(texts):
        data = texts[name].encode()
        lines.append(f"| `{name}` | {len(data)} | `{hashlib.sha256(data).hexdigest()}` |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args()
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        for package in PACKAGES:
            texts.update(unpack(package, Path(directory)))
    texts["README.md"] = readme(texts)
    texts["importmap.json"] = import_map()
    different = []
    for name, text in texts.items():
        path = HERE / name
        if path.exists() and path.read_text() == text:
            continue
        different.append(name)
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in different:
        print(("differs: " if arguments.check else "wrote ") + name)
    return 1 if arguments.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
