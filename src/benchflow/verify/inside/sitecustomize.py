"""Runs at the start of every Python program of a verifier, inside its sandbox: nothing new hides what is installed.

A program that is started in the workspace, or told to look there, finds the standard library, pytest, and whatever else
is installed or lies in /tests before a module of the same name that the agent added (the file `names` beside this one;
"*" where processes of the agent go on, and every module but those behind a "!" may be one that it adds). Modules that
the image shipped in the workspace are found as ever. Packages that the agent installed in the workspace (the file
`packages`) come after all others that are installed, but for each other. Where an installed module tries whether
another one is there, it does not mean the agent's: it finds no module that the agent added, and of its packages none
while it is imported itself, the standard library and pytest never. What it cannot do without, or was told by others to
load, it finds. Folders that .pth files of the agent name (the file `paths`) come after all others. Pytest plugins are
only those that are installed.
Works with every Python 3 and needs nothing but the standard library.
"""

# Also run by Pythons that are much older than ours: no annotations, no newer library.
# mypy: ignore-errors
# ruff: noqa: PTH100, PTH118, PTH120, PTH123, SIM105, SLF001
import os
import sys

LIBRARY = os.path.dirname(os.__file__)
TESTING = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "exceptiongroup", "tomli", "pygments", "py"}
# What the library tries to import on every system and finds on some: where it is missing nothing stands in for it.
NOWHERE = {"nt", "msvcrt", "winreg", "winsound", "msilib", "readline", "org", "java", "vms_lib", "apport_python_hook"}
NOWHERE.update(("_winapi", "_wmi", "_overlapped", "_msi", "_scproxy", "_winreg", "_subprocess"))
NOWHERE.update(name for name in getattr(sys, "stdlib_module_names", ()) if name.startswith("_"))


def _guard():
    import _frozen_importlib_external as external
    import site

    given = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    here = os.path.dirname(os.path.abspath(__file__))

    def listed(name):
        with open(os.path.join(here, name), "rb") as file:
            return {os.fsdecode(line) for line in file.read().split(b"\n") if line}

    named = listed("paths")
    # What is Python's own stays so, whoever names it again.
    own = set(getattr(site, "getsitepackages", list)()) | {LIBRARY}
    later = [entry for entry in sys.path if entry in named and entry not in own]
    sys.path[:] = [entry for entry in sys.path if entry not in later] + later
    # The folder of the script, or the current one, is put in front only after this has run.
    installed = frozenset(
        entry for entry in sys.path if entry and os.path.abspath(entry) not in given and entry not in later
    )
    finder = external.PathFinder
    order = _Order(finder.find_spec, installed, listed("names"), listed("packages"))
    finder.find_spec = order.find_spec
    _hide_plugins(finder, order.trusted)

    # The image's own module of this name, which ours stands in front of.
    spec = order.found("sitecustomize", [entry for entry in sys.path if entry in installed and entry != here])
    if spec is not None and spec.loader is not None:
        import importlib.util

        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Order:
    """Where modules are looked for; `found` is how Python does it."""

    def __init__(self, found, installed, added, places):
        self.found, self.installed, self.added = found, installed, added
        self.packages = {}
        for folder, name in map(os.path.split, places):
            self.packages.setdefault(folder, set()).add(name)
        # By their names, and where this Python finds them among what is installed.
        self.fresh = {name: set() for names in self.packages.values() for name in names}
        for entry in installed if places else ():
            for name in self.packages.get(os.path.realpath(entry), ()):
                self.fresh[name].add(entry)
        self.names = TESTING.union(getattr(sys, "stdlib_module_names", ()), NOWHERE, added, self.fresh)
        # Folders that the image has added to the path may be the task's own.
        kept = [LIBRARY, *(entry for entry in installed if entry.endswith("-packages"))]
        self.inside = ("<frozen", *(os.path.join(entry, "") for entry in kept))

    def trusted(self, entry):
        return entry in self.installed or (str(entry) + "/").startswith("/tests/")

    def find_spec(self, fullname, path=None, target=None):
        every = "*" in self.added and "!" + fullname not in self.added
        if path is not None or not (every or fullname in self.names or fullname.startswith("pytest_")):
            return self.found(fullname, path, target)
        entries = [entry for entry in sys.path if self.trusted(entry)]
        asking = _asking()
        folder, name = _package(asking) if self.fresh and asking is not None else ("", "")
        foreign = name not in self.packages.get(folder, ())
        if fullname in self.fresh and foreign:
            spec = self.found(fullname, [entry for entry in entries if entry not in self.fresh[fullname]], target)
            if fullname in NOWHERE or (spec is not None and spec.loader is not None):
                return spec
            if _tries(asking, fullname, self.inside, name == "" or name in TESTING):
                return None
        if len(entries) != len(sys.path):
            spec = self.found(fullname, entries, target)
            if fullname in NOWHERE or (spec is not None and spec.loader is not None):
                return spec
            if (every or fullname in self.added) and foreign and _tries(asking, fullname, self.inside, True):
                return None
        return self.found(fullname, path, target)


def _asking():
    """The frame that wants a module."""
    skipped = (__file__, "<frozen importlib", os.path.join(LIBRARY, "importlib", ""))
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return frame


def _package(frame):
    """The folder of packages that the code of a frame lies in, and the name that it has there, or ""."""
    head, known, tail = os.path.realpath(frame.f_code.co_filename).rpartition("-packages/")
    return head + known[:-1], tail.split("/")[0].split(".")[0] if known else ""


def _tries(frame, name, inside, always):
    """Whether installed code looks if there is a module of this name: at any time, or only while it is imported.

    It does by an import statement that it may go on without, or by a call with a name of its own choice.
    """
    frames = []
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        frames.append(frame)
        frame = frame.f_back
    body = next((frame for frame in frames if frame.f_code.co_name == "<module>"), None)
    imported = body is not None and body.f_globals.get("__spec__") and body.f_globals.get("__name__") != "__main__"
    if not frames or not (imported or always):
        return False
    if _imports(frames[0]):
        return any(_imports(frame) and not _needs(frame) for frame in frames)
    return imported and (_says(frames[0], name) or _says(body, name))


def _imports(frame):
    from opcode import opmap

    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_NAME"]


def _needs(frame):
    """Whether the line that is carried out stands by itself: neither in a function, nor below an `if` or a `try`."""
    try:
        with open(frame.f_code.co_filename, "rb") as file:
            line = file.read().split(b"\n")[frame.f_lineno - 1]
    except (OSError, IndexError):
        return False
    return line.startswith((b"import ", b"from "))


def _says(frame, name):
    """Whether the name is among the words of this code; what a statement imports from others is no such word."""
    code = frame.f_code
    lists = [constant for constant in code.co_consts if isinstance(constant, (tuple, frozenset))]
    words = [word for constant in lists for word in constant if word not in code.co_names]
    return any(isinstance(word, str) and word.split(".")[0] == name for word in (*code.co_consts, *words))


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
