"""Pins the Python packages of an image.

Usage: lock.py DIR, as `make lock` does with each image of sandbox-image, the lowest first.

DIR itself, and each layer below it, may have a wheels.in, which lists the layer's packages, any number to a line.
lock.py resolves all of them together, for the Python of the images, with what the image below has pinned. Each
wheels.txt gets the packages that the layer needs and no layer below has, with the hash of the one wheel for each
architecture. A package without a wheel for the first architecture is an error. A package without a wheel for another
architecture is marked for the first alone. `!NAME` is a package that Debian has; it is not pinned in the image. The
configuration of this machine's pip chooses the index, and no file records it.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

PYTHON = "3.11.2"  # Debian 12's
GLIBC = 36  # and its C library, 2.36
ARCHITECTURES = ["x86_64", "aarch64"]  # as wheels call them; the first is the one that all must have

ENVIRONMENT = {
    "implementation_name": "cpython", "implementation_version": PYTHON, "os_name": "posix",
    "platform_machine": ARCHITECTURES[0], "platform_python_implementation": "CPython",
    "platform_release": "", "platform_system": "Linux", "platform_version": "",
    "python_full_version": PYTHON, "python_version": "3.11", "sys_platform": "linux",
}


def main(root: Path) -> None:
    if platform.machine() != ARCHITECTURES[0]:
        sys.exit(
            f"lock.py: run it on {ARCHITECTURES[0]}: pip reads conditions on the machine as those of the one it "
            "runs on")
    layers = {f.parent: wanted(f) for f in [*root.glob("wheels.in"), *sorted(root.glob("*/wheels.in"))]}
    below = {canonicalize_name(r[1:]) for requirements in layers.values() for r in requirements if r[0] == "!"}
    layers = {d: [r for r in requirements if r[0] != "!"] for d, requirements in layers.items()}
    pins = pinned_below(root)
    packages = resolve([r for requirements in layers.values() for r in requirements], ARCHITECTURES[0], pins)
    found = {ARCHITECTURES[0]: packages} | {arch: available(packages, arch) for arch in ARCHITECTURES[1:]}
    below |= {canonicalize_name(Requirement(p).name) for p in pins}
    for directory, requirements in layers.items():
        names = closure(requirements, packages) - below
        below |= names
        write(directory / "wheels.txt", sorted(names), found)


def wanted(path: Path) -> list[str]:
    """wanted returns the requirements of a wheels.in."""
    lines = [re.sub(r"(^|\s)#.*", "", line) for line in path.read_text().splitlines()]
    return [word for line in lines for word in line.split()]


def pinned_below(root: Path) -> list[str]:
    """pinned_below returns what the image that root adds to has pinned, as NAME==VERSION."""
    if not (root / "from.txt").exists():
        return []
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in (root / "from.txt").read_text().splitlines()]
    (lower,) = filter(None, lines)
    return re.findall(r"^[\w.-]+==[^ \\\n]+", (root.parent / lower / "wheels.txt").read_text(), re.MULTILINE)


def resolve(requirements: list[str], arch: str, pins: list[str], *options: str) -> dict[str, dict]:
    """resolve returns the packages that pip would install: the entries of pip's report by name. A package of pins
    gets its version."""
    tags = [f"manylinux_2_{n}_{arch}" for n in range(5, GLIBC + 1)] + [
        f"manylinux{n}_{arch}" for n in ("1", "2010", "2014")]
    with tempfile.TemporaryDirectory() as tmp:
        wants, limits, report = Path(tmp, "wants.txt"), Path(tmp, "limits.txt"), Path(tmp, "report.json")
        wants.write_text("\n".join(requirements))
        limits.write_text("\n".join(pins))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
                   "--only-binary", ":all:",
                   "--python-version", PYTHON, "--implementation", "cp",
                   "--abi", "cp311", "--abi", "abi3", "--abi", "none",
                   "--target", tmp, "--report", str(report), "--requirement", str(wants),
                   "--constraint", str(limits), *options]
        for tag in tags:
            command += ["--platform", tag]
        subprocess.run(command, check=True)
        installs = json.loads(report.read_text())["install"]
    return {canonicalize_name(i["metadata"]["name"]): i for i in installs}


def available(packages: dict[str, dict], arch: str) -> dict[str, dict]:
    """available returns the pinned packages that also have a wheel for arch."""
    found = {}
    pins = {n: pin(n, p) for n, p in packages.items()}
    # A wheel for any machine fits arch too. The loop resolves the others one by one, because pip stops at the first
    # missing wheel.
    for name, p in packages.items():
        if p["download_info"]["url"].endswith("-any.whl"):
            found[name] = p
            continue
        try:
            found |= resolve([pins[name]], arch, [], "--no-deps")
        except subprocess.CalledProcessError:
            print(f"{pins[name]} has no wheel for {arch}", file=sys.stderr)
    return found


def pin(name: str, package: dict) -> str:
    return f"{name}=={package['metadata']['version']}"


def closure(requirements: list[str], packages: dict[str, dict]) -> set[str]:
    """closure returns the names of the requirements and of all their dependencies, including extras."""
    seen: set[tuple[str, str]] = set()
    todo = [Requirement(r) for r in requirements]
    while todo:
        r = todo.pop()
        name = canonicalize_name(r.name)
        for extra in ["", *r.extras]:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in packages[name]["metadata"].get("requires_dist", []):
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({**ENVIRONMENT, "extra": extra}):
                    todo.append(need)
    return {name for name, _ in seen}


def write(path: Path, names: list[str], found: dict[str, dict[str, dict]]) -> None:
    first = ARCHITECTURES[0]
    lines = ["# Made by `make lock` from wheels.in. Each hash is of one wheel.", ""]
    for name in names:
        hashes = {
            found[a][name]["download_info"]["archive_info"]["hashes"]["sha256"]: a
            for a in ARCHITECTURES if name in found[a]
        }
        only = "" if all(name in found[a] for a in ARCHITECTURES) else f' ; platform_machine == "{first}"'
        lines.append(" \\\n    ".join([pin(name, found[first][name]) + only, *(f"--hash=sha256:{h}" for h in hashes)]))
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
