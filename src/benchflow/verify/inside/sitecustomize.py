"""Runs at the start of every Python program of a verifier, inside its sandbox: nothing new hides what is installed.

A program that is started in the workspace, or told to look there, finds the standard library, pytest, and whatever else
is installed or lies in /tests before a module of the same name that the agent added (the file `names` beside this one;
"*" where processes of the agent go on, and every module may be one that it adds). Modules that the image shipped in the
workspace are found as ever. An import statement of an installed module never finds one that the agent added: where such
a module tries whether another one is there, it does not mean the agent's. Folders that .pth files of the agent name
(the file `paths`) come after all others. Pytest plugins are only those that are installed.
Works with every Python 3 and needs nothing but the standard library.
"""

# Also run by Pythons that are much older than ours: no annotations, no newer library.
# mypy: ignore-errors
# ruff: noqa: ARG001, I001, PTH100, PTH118, PTH120, PTH123, SIM105, SLF001
import sys


def _guard():
    import os

    import _frozen_importlib_external as external

    given = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    here = os.path.dirname(os.path.abspath(__file__))
    import site

    with open(os.path.join(here, "paths"), "rb") as file:
        named = {os.fsdecode(line) for line in file.read().split(b"\n")}
    # What is Python's own stays so, whoever names it again.
    own = set(getattr(site, "getsitepackages", list)()) | {os.path.dirname(os.__file__)}
    later = [entry for entry in sys.path if entry in named and entry not in own]
    sys.path[:] = [entry for entry in sys.path if entry not in later] + later
    # The folder of the script, or the current one, is put in front only after this has run.
    installed = frozenset(
        entry for entry in sys.path if entry and os.path.abspath(entry) not in given and entry not in later
    )
    names = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments", "py"}
    names.update(getattr(sys, "stdlib_module_names", ()))
    # What the library tries to import on every system and finds on some: where it is missing nothing stands in for it.
    nowhere = {"nt", "msvcrt", "winreg", "winsound", "msilib", "readline", "org", "java", "vms_lib"}
    nowhere.update(("_winapi", "_wmi", "_overlapped", "_msi", "_scproxy", "_winreg", "_subprocess"))
    nowhere.update(name for name in names if name.startswith("_") and name != "_pytest")
    names.update(nowhere)
    with open(os.path.join(here, "names")) as file:
        added = set(file.read().split())
    every = "*" in added
    names.update(added)
    finder = external.PathFinder
    find_spec = finder.find_spec

    def trusted(entry):
        return entry in installed or entry == "/tests" or entry.startswith("/tests/")

    packages = tuple(os.path.join(entry, "") for entry in installed)

    def first_what_is_installed(cls, fullname, path=None, target=None):
        if path is None and (every or fullname in names or fullname.startswith("pytest_")):
            entries = [entry for entry in sys.path if trusted(entry)]
            if len(entries) != len(sys.path):
                spec = find_spec(fullname, entries, target)
                if fullname in nowhere or (spec is not None and spec.loader is not None):
                    return spec
                if (every or fullname in added) and _asked_by(packages):
                    return None
        return find_spec(fullname, path, target)

    finder.find_spec = classmethod(first_what_is_installed)

    _hide_plugins(finder, trusted)

    # The image's own module of this name, which ours stands in front of.
    spec = find_spec("sitecustomize", [entry for entry in sys.path if entry in installed and entry != here])
    if spec is not None and spec.loader is not None:
        import importlib.util

        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _asked_by(packages):
    """Whether an import statement of a module in one of these folders is being carried out."""
    from opcode import opmap

    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None or frame.f_code.co_code[frame.f_lasti] != opmap["IMPORT_NAME"]:
        return False
    return frame.f_code.co_filename.startswith((*packages, "<frozen"))


def _hide_plugins(finder, trusted):
    find_distributions = getattr(finder, "find_distributions", None)

    def without_foreign_plugins(*args, **kwargs):
        for distribution in find_distributions(*args, **kwargs):
            if trusted(str(distribution.locate_file(""))) or not any(
                point.group == "pytest11" for point in distribution.entry_points
            ):
                yield distribution

    if find_distributions is not None:
        finder.find_distributions = staticmethod(without_foreign_plugins)


try:
    _guard()
except (ImportError, OSError):
    pass
