"""What is installed by default is under permissive licences; the page of licences lists every package that is named."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PERMISSIVE = re.compile(r"\b(MIT|BSD|0BSD|Apache|PSF|Python Software Foundation|ISC|Zlib|CC0)\b")
NOT_PERMISSIVE = re.compile(r"GPL|MPL|Mozilla|EPL|CDDL|Proprietary", re.I)


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0]


def licence(package: str) -> str:
    about: Any = metadata.metadata(package)
    classifiers = [each for each in about.get_all("Classifier") or [] if each.startswith("License")]
    return about.get("License-Expression") or " ".join([*classifiers, (about.get("License") or "")[:200]])


def with_dependencies(names: list[str]) -> set[str]:
    """The installed packages that these need, and what they need."""
    found, remaining = set(), list(names)
    while remaining:
        name = remaining.pop().lower().replace("_", "-")
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system or Python
            continue
        if name not in found:
            found.add(name)
            remaining += [name_of(each) for each in requirements if "extra ==" not in each]
    return found


def test_the_library_needs_permissive_licences_only():
    packages = with_dependencies([name_of(each) for each in PROJECT["dependencies"]])
    assert {"jax", "numpy", "pydantic-core", "markupsafe"} <= packages
    for package in packages:
        assert PERMISSIVE.search(licence(package)), f"{package}: {licence(package)}"
        assert not NOT_PERMISSIVE.search(licence(package)), f"{package}: {licence(package)}"


def test_the_page_lists_every_package_and_extra():
    page = (ROOT / "docs" / "licences.md").read_text()
    for requirement in PROJECT["dependencies"]:
        assert re.search(rf"^\| .*\b{name_of(requirement)}\b.* \|", page, re.M), requirement
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", page, re.M)
    listed = {extra: packages.split(", ") for extras, packages, _ in rows for extra in re.findall(r"`(\w+)`", extras)}
    given = {
        extra: list(map(name_of, each)) for extra, each in PROJECT["optional-dependencies"].items() if extra != "all"
    }
    assert listed == given
    for _, packages, licences in rows:
        for package, text in zip(packages.split(", "), licences.split(", "), strict="," in licences):
            assert bool(NOT_PERMISSIVE.search(licence(package))) == bool(NOT_PERMISSIVE.search(text)), package
