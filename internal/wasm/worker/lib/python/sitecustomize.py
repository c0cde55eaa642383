# Python runs this file before the program. It sets the working directory, which
# WASI does not have, and patches some modules when they are imported, with
# _sandbar.py, which is loaded only then.
import os
import sys


def _start():
    here = os.path.dirname(__file__)
    own = [p for p in os.environ.pop("PYTHONPATH", "").split(":") if p and p != here]
    if own:
        os.environ["PYTHONPATH"] = ":".join(own)
    sys.path[:] = [p for p in sys.path if p != here]
    directory = os.environ.pop("SANDBAR_DIR", "")
    if directory:
        os.chdir(directory)
    name = os.environ.pop("SANDBAR_ARGV0", "")
    if name:
        sys.argv[0] = name

    def own_module():
        sys.path.insert(0, here)
        try:
            import _sandbar
        finally:
            sys.path.remove(here)
        return _sandbar

    patched = {"asyncio.selector_events", "asyncio.base_events", "asyncio.unix_events",
               "socket", "subprocess"}
    # modules that this Python lacks, and that are imported late, such as when a
    # pool is created
    absent = {"concurrent.futures.thread": "WebAssembly has no threads in this sandbox",
              "concurrent.futures.process": "Python cannot fork in this sandbox"}

    class Finder:
        # finds a module by means of the following finders, and patches the module
        # after its execution
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in absent:
                raise ModuleNotFoundError(f"No module named {name!r}: {absent[name]}", name=name)
            if name not in patched:
                return None
            patched.discard(name)
            for finder in sys.meta_path:
                spec = finder is not Finder and finder.find_spec(name, path, target)
                if spec:
                    break
            else:
                return None
            execute = spec.loader.exec_module

            class Loader:
                @staticmethod
                def create_module(spec):
                    return None

                @staticmethod
                def exec_module(module):
                    execute(module)
                    own_module().patch(name, module)

                def __getattr__(self, attribute, loader=spec.loader):
                    return getattr(loader, attribute)

            spec.loader = Loader()
            return spec

    sys.meta_path.insert(0, Finder)

    def late(name):
        def function(*args, **kwargs):
            return getattr(own_module(), name)(*args, **kwargs)
        function.__name__ = function.__qualname__ = name
        return function

    for name in "chdir", "system", "chmod", "getuid", "geteuid", "getgid", "getegid", "umask", "kill":
        setattr(os, name, late(name))
    for name in "stat", "lstat":
        setattr(os, name, late(name))

    import _thread

    def start_new_thread(function, args=(), kwargs=None):
        raise RuntimeError("can't start new thread: WebAssembly has no threads in this sandbox")

    _thread.start_new_thread = _thread.start_new = start_new_thread

    import time
    times = os.times  # which takes nanoseconds for hundredths of a second
    time.process_time = lambda: sum(times()[:2]) / 1e7
    time.process_time_ns = lambda: int(sum(times()[:2]) * 100)


_start()
del _start
