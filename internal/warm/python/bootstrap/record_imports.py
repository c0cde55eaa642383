# Records what imports do to the interpreter besides making modules.
#
# The template imports modules before there is a program. A program must see the effects of an
# import when its own code imports the module, not earlier: so they are recorded per module and
# undone here, and repeated by hidden_modules.py.
import builtins
import os
import sys
import _frozen_importlib


class Record:
    """What the import of one module changes, besides the module itself."""

    def __init__(self):
        self.imports = []  # names of modules, in the order in which the module's code imports them
        self.recorded = self.imports
        self.effects = []  # functions that repeat the changes to shared state


class Recorder:
    """A context that writes one Record for each module imported in it."""

    def __init__(self):
        self.records = {}
        self.stack = [Record()]  # the innermost module whose code runs is last
        self.read = set()  # environment variables that were read
        self.handlers = [0]  # number of exit handlers that modules have registered in the program

    def __enter__(self):
        import atexit
        import _warnings
        self.atexit, self.warnings = atexit, _warnings
        self.lists = [(shared, shared[:]) for shared in (sys.meta_path, sys.path_hooks, sys.path, _warnings.filters)]
        self.before = self.lists[:]
        self.known = set(sys.modules)
        self.reducers = {}  # entries of copyreg.dispatch_table
        self.placed = set()  # names that module code has added to sys.modules directly
        self.variables = os.environ._data
        os.environ._data = RecordingEnviron(self)
        self.register, atexit.register = atexit.register, self.at_exit
        self.load, _frozen_importlib._load_unlocked = _frozen_importlib._load_unlocked, self.load_unlocked
        self.find, _frozen_importlib._gcd_import = _frozen_importlib._gcd_import, self.gcd_import
        self.import_, builtins.__import__ = builtins.__import__, self.import_statement
        return self

    def __exit__(self, *_):
        builtins.__import__ = self.import_
        _frozen_importlib._gcd_import = self.find
        _frozen_importlib._load_unlocked = self.load
        self.atexit.register = self.register
        self.note()
        for shared, before in self.before:
            shared[:] = before
        self.filters_changed()
        if self.reducers:
            sys.modules['copyreg'].dispatch_table.clear()
        os.environ._data.restore()
        os.environ._data = self.variables

    def load_unlocked(self, spec):
        self.note()
        record = Record()
        self.stack.append(record)
        self.known.add(spec.name)
        try:
            module = self.load(spec)
        except BaseException:
            self.note()
            self.stack.pop()
            # The changes that the failed import has made remain; they belong to its importer.
            self.stack[-1].imports += record.imports
            self.stack[-1].effects += record.effects
            raise
        self.note()
        self.stack.pop()
        self.records[spec.name] = record
        return module

    def gcd_import(self, name, package=None, level=0):
        module = self.find(name, package, level)
        self.imported(_frozen_importlib._resolve_name(name, package, level) if level else name)
        return module

    def import_statement(self, name, globals=None, locals=None, fromlist=(), level=0):
        self.note()
        module = self.import_(name, globals, locals, fromlist, level)
        if level:
            name = _frozen_importlib._resolve_name(name, _frozen_importlib._calc___package__(globals), level)
        self.imported(name)
        for part in fromlist or ():
            for part in getattr(sys.modules.get(name), '__all__', ()) if part == '*' else (part,):
                if type(part) is str and name + '.' + part in sys.modules:
                    self.imported(name + '.' + part)
        return module

    def imported(self, name):
        """Records that the running module has imported name and the packages above it."""
        imports = self.stack[-1].imports
        at = name.find('.')
        while at > 0:
            imports.append(name[:at])
            at = name.find('.', at + 1)
        imports.append(name)

    def effect(self, repeat):
        self.stack[-1].effects.append(repeat)

    def at_exit(self, function, *args, **kwargs):
        register = self.register
        if self.atexit.register is register:  # a module has kept a reference to this method
            return register(function, *args, **kwargs)
        def repeat():
            self.handlers[0] += 1
            register(function, *args, **kwargs)
        self.effect(repeat)
        return function

    def note(self):
        """Attributes all additions to shared state since the last call to the running module."""
        for name in [name for name in sys.modules if name not in self.known]:
            self.known.add(name)
            self.placed.add(name)
            self.stack[-1].imports.append(name)
        exits = getattr(sys.modules.get('threading'), '_threading_atexits', None)
        if type(exits) is list and all(shared is not exits for shared, _ in self.lists):
            self.lists.append((exits, []))
            self.before.append((exits, []))
        table = getattr(sys.modules.get('copyreg'), 'dispatch_table', {})
        for key in [key for key in table if key not in self.reducers]:
            self.reducers[key] = table[key]
            self.effect(lambda key=key, value=table[key]: table.setdefault(key, value))
        for i, (shared, before) in enumerate(self.lists):
            if len(shared) == len(before) and all(map(lambda a, b: a is b, shared, before)):
                continue
            for at, item in enumerate(shared):
                if all(item is not known for known in before):
                    self.effect(self.insertion(shared, item, at == 0))
            self.lists[i] = (shared, shared[:])

    def insertion(self, shared, item, front):
        def repeat():
            shared.insert(0 if front else len(shared), item)
            self.filters_changed()
        return repeat

    def filters_changed(self):
        """Tells the warnings module that its filters have changed."""
        if hasattr(self.warnings, '_filters_mutated'):  # before CPython 3.14
            self.warnings._filters_mutated()
            return
        self.warnings._acquire_lock()
        try:
            self.warnings._filters_mutated_lock_held()
        finally:
            self.warnings._release_lock()


class RecordingEnviron(dict):
    """The environment during imports: it records reads, and writes as effects."""

    def __init__(self, recorder):
        super().__init__(recorder.variables)
        self.recorder = recorder

    def __getitem__(self, key):
        self.recorder.read.add(key)
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.recorder.effect(lambda: os.environb.__setitem__(key, value))

    def __delitem__(self, key):
        super().__delitem__(key)
        self.recorder.effect(lambda: os.environb.pop(key, None))

    def restore(self):
        """Undoes in libc's environment what imports have changed there."""
        before = self.recorder.variables
        for key in [key for key in self if key not in before]:
            os.unsetenv(key)
        for key, value in before.items():
            if self.get(key) != value:
                os.putenv(key, value)
