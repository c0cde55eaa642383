# Hides modules that were imported in advance, until a program imports them.
#
# A hidden module is not in sys.modules and not an attribute of its package. If the program imports
# it, the module and its recorded effects appear without its code running again. If the program has
# changed the import system so that the import could have another result, the module is dropped and
# imported from its file.
import builtins
import os
import sys
import _thread
import _frozen_importlib
import _frozen_importlib_external


class BaseModules(set):
    """The names of modules that start-up imports by itself."""

    def __init__(self):
        super().__init__(sys.modules)
        if sys.version_info >= (3, 14):
            self.discard('io')  # imported because this program is in a zip file
        self.importers = set(sys.path_importer_cache)


class HiddenModules:
    """All modules imported since base, taken out of the import system."""

    def __init__(self, base, recorder, wanted):
        self.records, self.placed = recorder.records, recorder.placed
        self.lock = _thread.RLock()
        os.register_at_fork(after_in_child=self.lock._at_fork_reinit)
        self.dropped = []  # modules that the program has imported anew; never freed
        self.meta_path = sys.meta_path[:]
        self.path = frozenset(sys.path)
        self.import_ = builtins.__import__
        self.modules = {name: sys.modules[name] for name in sys.modules if name not in base}
        self.same = {}  # hidden names of modules that base has under another name
        for name in base:
            for other, module in self.modules.items():
                if module is sys.modules[name]:
                    self.same[other], self.modules[other] = name, None
        self.importers = {}  # entries of sys.path_importer_cache for directories of packages
        self.bound = set()  # names of modules that were an attribute of their package
        for name, module in self.modules.items():
            if module is None:
                continue
            parent, _, child = name.rpartition('.')
            parent = sys.modules.get(parent)
            if parent is not None and vars(parent).get(child) is module:
                delattr(parent, child)
                self.bound.add(name)
        for name in self.modules:
            del sys.modules[name]
        for record in self.records.values():  # hidden names only, each once
            # Record.recorded keeps the first list alive: a freed list leaves holes in the heap,
            # copies would allocate there and so write to more pages.
            record.imports = [name for name in dict.fromkeys(record.imports) if name in self.modules]
        self.collected = {name: self.collect(name, [], set()) for name in wanted}  # while all are hidden
        for entry in [entry for entry in sys.path_importer_cache if entry not in base.importers]:
            self.importers[entry] = sys.path_importer_cache.pop(entry)

    def reveal(self, name):
        """Does what importing a module does, if it is hidden and the import would find it."""
        parent = name.rpartition('.')[0]
        if parent in self.modules:
            self.reveal(parent)
        if name not in self.modules:
            return
        known = self.collected.get(name)
        names = self.collect(name, [], set()) if known is None else [name for name in known if name in self.modules]
        if self.needs_run(names):
            # The import system runs its code again. Modules that this code imports may be hidden.
            self.dropped.append(self.modules.pop(name))
            return
        self.enter(name)

    def collect(self, name, names, seen):
        """Lists a module and the modules that its code imports, as far as they are hidden."""
        if name not in seen and name in self.modules and name not in sys.modules:
            seen.add(name)
            names.append(name)
            for other in self.records.get(name, NO_RECORD).imports:
                self.collect(other, names, seen)
        return names

    def needs_run(self, names):
        """Whether the code of these modules could have another effect than it had in the template."""
        finders = sys.meta_path
        if finders is None:  # the interpreter is shutting down
            return True
        if any(all(finder is not known for known in finders) for finder in self.meta_path):
            return True
        own = [finder for finder in finders if all(finder is not known for known in self.meta_path)]
        paths = self.paths()
        for name in names:
            # Finders are not asked for names that module code has added to sys.modules directly.
            if '.' not in name and name not in self.placed and self.shadowed(name, own, paths):
                return True
        if builtins.__import__ is self.import_ and sys.gettrace() is None and sys.getprofile() is None:
            return False
        # A program that traces imports must see them. But most extension modules can be
        # initialized only once per process.
        specs = [getattr(self.modules[name], '__spec__', None) for name in names]
        return not any('-packages/' in (getattr(spec, 'origin', None) or '') for spec in specs)

    def paths(self):
        """The finders of directories that the program has put before each of the known ones."""
        before, paths = [], {}
        for entry in sys.path:
            if entry in self.path:
                paths.setdefault(entry, list(before))
            else:
                finder = _frozen_importlib_external.PathFinder._path_importer_cache(entry)
                if finder is not None:
                    before.append(finder)
        return paths

    def shadowed(self, name, own, paths):
        """Whether the program has a module of its own with this name."""
        if any(finder.find_spec(name, None, None) is not None for finder in own):
            return True
        spec = getattr(self.modules[name], '__spec__', None)
        if spec is None or not spec.has_location:
            return False
        home = spec.origin.rpartition('/')[0]
        if spec.submodule_search_locations is not None:
            home = home.rpartition('/')[0]
        return home not in paths or any(finder.find_spec(name) is not None for finder in paths[home])

    def enter(self, name):
        """Puts a module, and the modules that its code imports, into sys.modules in recorded order."""
        if name not in self.modules or name in sys.modules:
            return
        parent, _, child = name.rpartition('.')
        if parent in self.modules:
            self.enter(parent)
        for entry in getattr(sys.modules.get(parent), '__path__', ()) if parent else ():
            if entry in self.importers:
                sys.path_importer_cache.setdefault(entry, self.importers.pop(entry))
        module = self.modules.pop(name) or sys.modules.get(self.same[name])
        sys.modules[name] = module
        if name in self.records:
            spec = module.__spec__
            if type(spec.loader) is _frozen_importlib_external.ExtensionFileLoader:
                sys.audit('import', name, spec.origin, None, None, None)
            for other in self.records[name].imports:
                if other in self.modules and other not in sys.modules:
                    if other not in self.placed:
                        sys.audit('import', other, None, sys.path, sys.meta_path, sys.path_hooks)
                    self.enter(other)
            for repeat in self.records[name].effects:
                repeat()
            sys.modules[name] = sys.modules.pop(name)  # the import system does so after the code
        if name in self.bound and parent in sys.modules:
            setattr(sys.modules[parent], child, module)
        if name in RESEED:
            RESEED[name](module)


NO_RECORD = Record()


def hook_imports(hidden):
    """Makes each import look for a hidden module first.

    The import system takes the module lock for each module that is not in sys.modules. This is the
    only step common to all imports that leaves no frame of this file on the stack while the
    module's code runs."""
    class _ModuleLockManager(_frozen_importlib._ModuleLockManager):
        def __enter__(self):
            super().__enter__()
            if self._name in hidden.modules:
                try:
                    with hidden.lock:
                        hidden.reveal(self._name)
                except BaseException:
                    self.__exit__(None, None, None)
                    raise
    _ModuleLockManager.__module__ = _frozen_importlib._ModuleLockManager.__module__
    _ModuleLockManager.__qualname__ = '_ModuleLockManager'
    _frozen_importlib._ModuleLockManager = _ModuleLockManager
