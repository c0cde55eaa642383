"""Records which methods of E2B's packages the program calls itself; import it first. The program
ends with end, which prints "called KEY" for each. With the arguments "declared" and a mode it prints
"declared KEY" for each public method instead. A KEY is CLASS.METHOD, without "Async" before the
class."""

import enum
import inspect
import os
import sys
import typing

import e2b
import e2b_code_interpreter
from e2b.template.main import TemplateBuilder


class Recorder:
    """Stands for a method of a class, and records who looks it up."""

    def __init__(self, key, original):
        self.key, self.original = key, original

    def __get__(self, instance, owner=None):
        if sys._getframe(1).f_globals.get("__name__") == "__main__":
            called.add(self.key)
        return self.original.__get__(instance, owner)


called = set()


def end():
    """Prints the calls and ends the process, without the end of the interpreter: the threads of
    pyqwest, the SDK's HTTP client, abort it at times."""
    for key in sorted(called):
        print("called", key)
    sys.stdout.flush()
    os._exit(0)


def classes(sync):
    """Returns the classes of one client that have methods, those of its sandboxes' parts included."""
    found = [TemplateBuilder]
    for module in (e2b, e2b_code_interpreter):
        for name, kind in vars(module).items():
            other = name.removeprefix("Async") if sync else "Async" + name
            twin = hasattr(module, other) and other != name or name.startswith("Async")
            if inspect.isclass(kind) and kind is not e2b.TemplateBase and not issubclass(kind, (BaseException, enum.Enum)) and not typing.is_typeddict(kind) and (
                    not twin or name.startswith("Async") != sync):
                found.append(kind)
    sandbox = e2b.Sandbox if sync else e2b.AsyncSandbox
    for part in ("commands", "files", "pty", "git"):
        found.append(inspect.signature(getattr(sandbox, part).fget).return_annotation)
    return found


def methods(kind):
    for name in dir(kind):
        original = inspect.getattr_static(kind, name)
        made = next(c for c in kind.__mro__ if name in vars(c)).__module__
        if not name.startswith("_") and made.startswith("e2b") and callable(getattr(kind, name)) and not isinstance(original, (type, property)):
            yield kind.__name__.removeprefix("Async") + "." + name, name, original


def main():
    if sys.argv[1] == "declared":
        for kind in classes(sys.argv[2] == "sync"):
            for key, _, _ in methods(kind):
                print("declared", key)
        return
    for kind in classes(sys.argv[1] == "sync"):
        for key, name, original in list(methods(kind)):
            if not isinstance(original, Recorder):
                setattr(kind, name, Recorder(key, original))


main()
