# The half of a template that is inside the interpreter. Package python, which
# carries it, says what it is for and what it promises.
#
# The interpreter has been started as "python3 FILE", and this is its
# sitecustomize: it runs at the end of start-up, before FILE is opened. A copy
# that has its job returns from here. So all that comes after, from opening FILE
# to the exit status, is the interpreter's own code, with nothing of ours below it
# on the stack.
import builtins
import os
import sys
import _thread
import _frozen_importlib
import _frozen_importlib_external

CONTROL = 3  # the daemon's socket, in the template
ARCHIVE = 4  # what this file is read from
CALLER = 3  # the daemon's socket, in a copy
KEEP = 4  # what the keeper of a copy's memory waits on
FIRST = 1  # a sandbox's first process
HOT = b'hot\n'  # before the pages that copies use
DEEP = 300  # lists, one in another, that take some 100 KiB of stack to print
ZIP = b'PK\5\6'  # is in every archive
NO_CODE = 0xffffffff  # instead of the length of a program whose file is there


# ---- Importing ahead

class Record:
    """What a program sees of the import of one module, besides the module."""

    def __init__(self):
        self.imports = []  # names, in the order in which its code asked for them
        self.recorded = self.imports
        self.effects = []  # functions that repeat what it did to something shared


class Recorder:
    """Notes, while modules are imported, a Record of each."""

    def __init__(self):
        self.records = {}
        self.stack = [Record()]  # the innermost module whose code runs is last
        self.read = set()  # variables of the environment that were asked for
        self.handlers = [0]  # how many exit handlers programs have got with modules

    def __enter__(self):
        import atexit
        import _warnings
        self.atexit, self.warnings = atexit, _warnings
        self.lists = [(shared, shared[:]) for shared in (sys.meta_path, sys.path_hooks, sys.path, _warnings.filters)]
        self.before = self.lists[:]
        self.known = set(sys.modules)
        self.reducers = {}  # what is registered for pickling
        self.placed = set()  # names that code has put into sys.modules by itself
        self.variables = os.environ._data
        os.environ._data = Watched(self)
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
        self.warnings._filters_mutated()
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
            # What it did before it failed is done.
            self.stack[-1].imports += record.imports
            self.stack[-1].effects += record.effects
            raise
        self.note()
        self.stack.pop()
        self.records[spec.name] = record
        return module

    def gcd_import(self, name, package=None, level=0):
        module = self.find(name, package, level)
        self.asked(_frozen_importlib._resolve_name(name, package, level) if level else name)
        return module

    def import_statement(self, name, globals=None, locals=None, fromlist=(), level=0):
        self.note()
        module = self.import_(name, globals, locals, fromlist, level)
        if level:
            name = _frozen_importlib._resolve_name(name, _frozen_importlib._calc___package__(globals), level)
        self.asked(name)
        for part in fromlist or ():
            for part in getattr(sys.modules.get(name), '__all__', ()) if part == '*' else (part,):
                if type(part) is str and name + '.' + part in sys.modules:
                    self.asked(name + '.' + part)
        return module

    def asked(self, name):
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
        if self.atexit.register is register:  # somebody kept this function
            return register(function, *args, **kwargs)
        def repeat():
            self.handlers[0] += 1
            register(function, *args, **kwargs)
        self.effect(repeat)
        return function

    def note(self):
        """Lays what has been added to shared things to the module whose code has run."""
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
            self.warnings._filters_mutated()
        return repeat


class Watched(dict):
    """The variables of the environment while modules are imported."""

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
        """Puts back what imports have changed, of which this class has kept only half."""
        before = self.recorder.variables
        for key in [key for key in self if key not in before]:
            os.unsetenv(key)
        for key, value in before.items():
            if self.get(key) != value:
                os.putenv(key, value)


class Base(set):
    """What there is before anything is imported ahead."""

    def __init__(self):
        super().__init__(sys.modules)
        self.importers = set(sys.path_importer_cache)


class Hidden:
    """The modules that were imported ahead, until a program imports them."""

    def __init__(self, base, recorder, wanted):
        self.records, self.placed = recorder.records, recorder.placed
        self.lock = _thread.RLock()
        os.register_at_fork(after_in_child=self.lock._at_fork_reinit)
        self.dropped = []  # what the program has another of; never freed
        self.meta_path = sys.meta_path[:]
        self.path = frozenset(sys.path)
        self.import_ = builtins.__import__
        self.modules = {name: sys.modules[name] for name in sys.modules if name not in base}
        self.same = {}  # other names of modules that were there before
        for name in base:
            for other, module in self.modules.items():
                if module is sys.modules[name]:
                    self.same[other], self.modules[other] = name, None
        self.importers = {}  # what sys.path_importer_cache has of packages, until they are imported
        self.bound = set()  # children that importing binds in their parents
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
        for record in self.records.values():  # each once, and nothing that is never looked for here
            # The first list stays: what is freed leaves holes, which copies would fill and so write to more pages.
            record.imports = [name for name in dict.fromkeys(record.imports) if name in self.modules]
        self.collected = {name: self.collect(name, [], set()) for name in wanted}  # while all of it is here
        for entry in [entry for entry in sys.path_importer_cache if entry not in base.importers]:
            self.importers[entry] = sys.path_importer_cache.pop(entry)

    def reveal(self, name):
        """Does what importing a module does, if it is here and would be what is imported."""
        parent = name.rpartition('.')[0]
        if parent in self.modules:
            self.reveal(parent)
        if name not in self.modules:
            return
        known = self.collected.get(name)
        names = self.collect(name, [], set()) if known is None else [name for name in known if name in self.modules]
        if self.needs_run(names):
            # Its code runs again; what that imports may be here.
            self.dropped.append(self.modules.pop(name))
            return
        self.enter(name)

    def collect(self, name, names, seen):
        """Lists a module and what its code imports, as far as it is here."""
        if name not in seen and name in self.modules and name not in sys.modules:
            seen.add(name)
            names.append(name)
            for other in self.records.get(name, NOTHING).imports:
                self.collect(other, names, seen)
        return names

    def needs_run(self, names):
        """Whether the program has arranged for the code of modules to do something else than it did here."""
        finders = sys.meta_path
        if finders is None:  # the interpreter is ending
            return True
        if any(all(finder is not known for known in finders) for finder in self.meta_path):
            return True
        own = [finder for finder in finders if all(finder is not known for known in self.meta_path)]
        paths = self.paths()
        for name in names:
            # What code has put there by itself nobody looks for.
            if '.' not in name and name not in self.placed and self.shadowed(name, own, paths):
                return True
        if builtins.__import__ is self.import_ and sys.gettrace() is None and sys.getprofile() is None:
            return False
        # Who watches imports is to see them; but most extensions start only once.
        specs = [getattr(self.modules[name], '__spec__', None) for name in names]
        return not any('-packages/' in (getattr(spec, 'origin', None) or '') for spec in specs)

    def paths(self):
        """The directories of the program's own that are searched before each of the known ones."""
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
        """Whether the program has another module of this name."""
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
        """Puts a module into sys.modules, and what its code put there, in that order."""
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
            sys.modules[name] = sys.modules.pop(name)  # as the import system does when the code has run
        if name in self.bound and parent in sys.modules:
            setattr(sys.modules[parent], child, module)
        if name in FRESH:
            FRESH[name](module)


NOTHING = Record()


def hide(hidden):
    """Has every import look among the hidden modules first.

    The lock that each import of a missing module takes is the one place that
    all of them pass and that leaves no frame of ours on the stack when the
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


# ---- What no two copies may share

def fresh_logging(logging):
    import time
    logging._startTime = time.time_ns() if type(logging._startTime) is int else time.time()


def fresh_process(process):
    process.current_process()._config['authkey'] = process.AuthenticationString(os.urandom(32))


# FRESH is what is renewed when a module comes to light. The module random has
# itself renewed after a fork.
FRESH = {
    'logging': fresh_logging,
    'multiprocessing.process': fresh_process,
    'numpy.random': lambda random: random.seed(),
    'platform': lambda platform: setattr(platform, '_uname_cache', None),
    'threading': lambda threading: threading.main_thread()._set_native_id(),
}


# ---- The end

# What a program makes of the built-in functions does not reach what follows.
__builtins__ = dict(vars(builtins))


class Ending:
    """The end of a program that leaves nothing behind that would show.

    The interpreter's own end takes everything apart, and so has the kernel copy a
    thousand pages that are then thrown away. What a program can see of that are
    exit handlers, streams that are flushed, and objects that do something when
    they go. So it is left out where handlers have run, streams are flushed here,
    and there are no such objects; and where it is certain that the exit status is
    0: the main module has come to its end. In all other cases, and wherever there
    is a doubt, the interpreter ends by itself.

    An exit status other than 0 comes from an exception that nobody caught. The
    interpreter tells of it in sys.last_value, which changes the version of that
    dictionary; or sys.exit has been called; or the interpreter has asked a SystemExit
    for its code, and freed it unless something still refers to it. Python code cannot
    watch the last three without being seen, so their entries in the interpreter's
    own tables are led over a few instructions that take a flag away. So are those
    of functions after which a program could see this end, or have other libraries
    end with it."""

    MANY = 10000  # objects that are looked through at most
    # Modules in C whose objects hold nothing but memory and descriptors, or have
    # __del__. Of others nobody knows what their objects do when they go.
    HARMLESS = frozenset('''
        _abc _ast _asyncio _bisect _blake2 _bz2 _codecs _collections _contextvars _csv _datetime _decimal
        _elementtree _functools _hashlib _heapq _imp _io _json _locale _lzma _md5 _opcode _operator _pickle
        _posixsubprocess _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _signal _socket _sre _ssl _stat
        _statistics _string _struct _thread _tokenize _typing _uuid _warnings _weakref _zoneinfo array atexit
        binascii builtins cmath errno fcntl gc grp itertools marshal math mmap posix pwd pyexpat resource select sys
        termios time unicodedata zlib'''.split())
    PACKAGES = 'numpy', 'pandas'  # with modules in C that are harmless too
    HEAD = 16  # bytes of an object's head; then come a function's table entry, a dictionary's length and version
    DEALLOC, GETATTRO, INIT = 48, 144, 296  # where a type has its functions
    COLLECTED = 1 << 14  # the flag of types whose objects the collector knows
    HEAP = 1 << 9  # the flag of types to which their objects refer

    def __init__(self, kernel, gc, handlers):
        import atexit
        import io
        import types
        import weakref
        self.kernel, self.gc, self.handlers, self.rehearsal = kernel, gc, handlers, None
        self.objects, self.callbacks, self.garbage, self.references = gc.get_objects, gc.callbacks, gc.garbage, sys.getrefcount
        self.threads, self.frame, self.exit, self.fflush = _thread._count, sys._getframe, os._exit, kernel.libc.fflush
        self.count = atexit._ncallbacks
        self.mro, self.namespace = (type.__dict__[name].__get__ for name in ('__mro__', '__dict__'))
        plain = (dict, list, tuple, set, frozenset, types.FunctionType, types.BuiltinFunctionType, types.CellType,
                 types.ModuleType, types.MethodType, types.MappingProxyType, types.GetSetDescriptorType,
                 types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
                 property, staticmethod, classmethod, io.StringIO, io.BytesIO)
        self.plain = {id(kind) for kind in plain}
        self.running = {id(kind) for kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)}
        self.reference, self.callback = weakref.ref, weakref.ref.__callback__.__get__
        self.text, self.builtin = io.TextIOWrapper, types.BuiltinFunctionType
        self.file, self.buffered = io.FileIO, {id(kind) for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)}
        self.armed = bytearray(1)
        self.unseen = [kind for kind in type.__subclasses__(object) if '__del__' in vars(kind) and not kind.__flags__ & self.COLLECTED]
        self.able = self.supported() and self.watch()
        if self.able:
            # A filter, so that nothing of ours is called where it is not to be.
            atexit.register(any, map(self.leave, filter(None, self.armed)))
            atexit._ncallbacks = lambda: max(self.count() - 1, 0)

    def supported(self):
        """Whether this interpreter is one with which it has been tried."""
        if not (3, 10) <= sys.version_info[:2] <= (3, 13) or sys.implementation.name != 'cpython':
            return False
        if self.kernel.arch != 'amd64' or sys.abiflags or sys._xoptions:
            return False
        if sys.flags.verbose or sys.flags.inspect or sys.flags.dev_mode or 'PYTHONMALLOCSTATS' in os.environ:
            return False
        before = self.sys_version()
        sys.last_value = None
        between = self.sys_version()
        del sys.last_value
        return before != between != self.sys_version() != before

    def sys_version(self):
        """The version of sys's dictionary, which every change of it changes."""
        return self.kernel.ctypes.c_uint64.from_address(id(vars(sys)) + self.HEAD + 8).value

    def watch(self):
        """Has the flag go where the shortcut is not to be taken. False if there is no way."""
        import _ctypes
        import _imp
        ctypes = self.kernel.ctypes
        def slot(kind, at):
            return ctypes.c_void_p.from_address(id(kind) + at)
        if slot(SystemExit, self.GETATTRO).value != ctypes.cast(ctypes.pythonapi.PyObject_GenericGetAttr, ctypes.c_void_p).value:
            return False
        entries = [slot(SystemExit, self.GETATTRO), slot(SystemExit, self.DEALLOC)]
        # These do something when they go, but no collector knows them.
        entries += [slot(kind, self.INIT) for kind in self.unseen if not kind.__flags__ & self.HEAP]
        self.unseen = [kind for kind in self.unseen if kind.__flags__ & self.HEAP]
        for module, names in ((sys, ('exit', 'addaudithook', 'settrace', 'setprofile', '_settraceallthreads', '_setprofileallthreads')),
                              (getattr(sys, 'monitoring', None), ('use_tool_id',)),
                              (self.gc, ('freeze', 'unfreeze', 'set_debug')),
                              (_imp, ('create_dynamic', 'create_builtin')), (_ctypes, ('dlopen',))):
            for name in names:
                function = getattr(module, name, None)
                if function is None:
                    continue
                method = ctypes.c_void_p.from_address(id(function) + self.HEAD).value
                if type(function) is not self.builtin or ctypes.c_char_p.from_address(method).value != name.encode():
                    return False
                entries.append(ctypes.c_void_p.from_address(method + 8))
        flag = ctypes.addressof(ctypes.c_char.from_buffer(self.armed))
        detours = [self.detour(flag, entry.value) for entry in entries]
        page = self.kernel.executable(b''.join(detours))
        if page is None:
            return False
        for entry, code in zip(entries, detours):
            entry.value = page
            page += len(code)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
        return True

    @staticmethod
    def detour(flag, function):
        """Instructions that take the flag away and go on to the function."""
        return (b'\xf3\x0f\x1e\xfa'  # endbr64
                + b'\x48\xb8' + flag.to_bytes(8, 'little')  # mov rax, flag
                + b'\xc6\x00\x00'  # mov byte [rax], 0
                + b'\x48\xb8' + function.to_bytes(8, 'little') + b'\xff\xe0')  # mov rax, function; jmp rax

    def begin(self, file, regular):
        """Is called when the program is about to begin."""
        try:
            if not regular:
                fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                regular = os.fstat(fd).st_mode & 0o170000 == 0o100000
                os.close(fd)
        except OSError:
            pass
        # For another file the interpreter has an exit status of its own.
        self.armed[0] = self.able and regular
        self.known = set()
        self.streams = sys.stdin, sys.stdout, sys.stderr
        for stream in self.streams:
            self.known |= {id(stream), id(stream.buffer), id(getattr(stream.buffer, 'raw', None))}
        self.alive = [self.references(kind) for kind in self.unseen]
        self.version = self.sys_version()

    def hide(self, hidden):
        """Tells it which modules are hidden."""
        self.hidden = hidden
        self.risky = [name for name, module in hidden.modules.items() if module is not None and self.is_risky(name, module)]

    def is_risky(self, name, module):
        spec = getattr(module, '__spec__', None)
        loader, package = getattr(spec, 'loader', None), getattr(spec, 'name', name).partition('.')[0]
        return (name not in self.HARMLESS and package not in self.PACKAGES
                and (loader is _frozen_importlib.BuiltinImporter or type(loader) is _frozen_importlib_external.ExtensionFileLoader))

    def leave(self, _):
        """Is called last of the exit handlers, while the flag is there."""
        try:
            if self.certain() and self.tidy():
                sys.stdout.flush()
                sys.stderr.flush()
                self.fflush(None)
                if self.rehearsal is not None:
                    self.rehearsal.report()
                self.exit(0)
        except BaseException:
            pass  # the interpreter comes upon it too

    def certain(self):
        """Whether the main module has come to its end, and no handler can have hidden another end."""
        return self.sys_version() == self.version and self.frame(1).f_back is None and self.unchanged()

    def unchanged(self):
        """Whether the program has left the interpreter without threads, handlers and other things of its own."""
        return (not self.threads() and self.count() <= 1 + self.handlers[0] and not self.callbacks and not self.garbage
                and not type.__subclasses__(SystemExit) and [self.references(kind) for kind in self.unseen] == self.alive)

    def tidy(self):
        """Whether nothing that the program has made does something when it goes."""
        seen = [name for name in self.risky if name not in self.hidden.modules]
        if seen and not (seen == ['_ctypes'] and 'numpy' in sys.modules):  # which imports it for its own use
            return False
        for stream in self.streams:
            if type(stream) is not self.text or stream.closed or self.changed(stream):
                return False
        objects = self.objects()
        if len(objects) > self.MANY:
            return False
        acting = {}
        for thing in objects:
            kind = type(thing)
            if id(kind) in self.plain:
                continue
            if id(kind) in self.running:
                return False
            if issubclass(kind, self.reference):
                if self.calls(thing):
                    return False
            elif (self.acts(kind, acting) or issubclass(kind, type) and self.acts(thing, acting)) and not self.is_shut(thing):
                return False
        return True

    @staticmethod
    def changed(stream):
        """Whether somebody has put methods of their own into a stream."""
        buffer = stream.buffer
        raw = getattr(buffer, 'raw', buffer)
        return not (vars(stream).keys() <= {'mode'} and vars(buffer).keys() <= {'name'} and vars(raw).keys() <= {'name'})

    def is_shut(self, thing):
        """Whether it is a standard stream, or a file that has been closed."""
        if id(thing) in self.known:
            return True
        if type(thing) is self.text:
            thing = thing.buffer
        if id(type(thing)) in self.buffered:
            thing = thing.raw
        return type(thing) is self.file and thing.closed

    def calls(self, reference):
        """Whether a weak reference does something when its object goes, besides forgetting it."""
        callback = self.callback(reference)
        return callback is not None and not (type(callback) is self.builtin and callback.__name__ == '_destroy')

    def acts(self, kind, acting):
        """Whether objects of a type do something when they go. It asks no code of the program's."""
        if id(kind) not in acting:
            acting[id(kind)] = any('__del__' in self.namespace(base) for base in self.mro(kind))
        return acting[id(kind)]


# ---- System calls

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_MM, PR_SET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS, PR_CAP_AMBIENT = 4, 24, 35, 38, 40, 47
PR_CAP_AMBIENT_CLEAR_ALL, PR_SET_MM_MAP = 4, 14
PR_SCHED_CORE, PR_SCHED_CORE_CREATE, THREAD_GROUP = 62, 1, 1
SECCOMP_SET_MODE_FILTER = 1
LINUX_CAPABILITY_VERSION_3 = 0x20080522
EINVAL, ENODEV, ENOSPC, EPERM = 22, 19, 28, 1
PROT_READ, PROT_WRITE, PROT_EXEC, MAP_PRIVATE, MAP_ANONYMOUS = 1, 2, 4, 2, 32
SIGCHLD, SIG_DFL, SIG_IGN = 17, 0, 1
CLONE_VM, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x100, 0x200000, 0x1000000


class Kernel:
    """The system calls that the interpreter has no function for."""

    def __init__(self, arch, numbers):
        import ctypes
        self.arch, self.ctypes = arch, ctypes
        self.libc = ctypes.PyDLL(None, use_errno=True)
        self.libc.syscall.restype = ctypes.c_long
        self.numbers = numbers

    def call(self, name, *args):
        """Makes a call whose arguments are numbers."""
        result = self.libc.syscall(self.ctypes.c_long(self.numbers[name]), *map(self.ctypes.c_long, args))
        if result < 0:
            raise OSError(self.ctypes.get_errno(), name)
        return result

    def executable(self, code):
        """Puts instructions into memory and returns where; None if that is not allowed."""
        size = 4096
        try:
            page = self.call('mmap', 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            self.ctypes.memmove(page, code, len(code))
            self.call('mprotect', page, size, PROT_READ | PROT_EXEC)
        except OSError:
            return None
        return page

    def prctl(self, *args):
        return self.call('prctl', *(args + (0,) * (5 - len(args))))

    def fork(self):
        """Forks without what the interpreter does before and after."""
        pid = self.libc.fork()
        if pid < 0:
            raise OSError(self.ctypes.get_errno(), 'fork')
        return pid

    def signal(self, number, action):
        """Has a signal be ignored or not, and the interpreter not know."""
        self.libc.signal(number, self.ctypes.c_void_p(action))

    def filter(self, program):
        """Installs a filter of system calls."""
        ctypes = self.ctypes
        held = ctypes.create_string_buffer(program, len(program))
        head = (ctypes.c_uint64 * 2)(len(program) // 8, ctypes.addressof(held))
        self.call('seccomp', SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(head))

    def drop_capabilities(self):
        ctypes = self.ctypes
        head = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)()
        self.call('capset', ctypes.addressof(head), ctypes.addressof(sets))
        self.call('capget', ctypes.addressof(head), ctypes.addressof(sets))
        if any(sets):
            raise OSError(EPERM, 'capset')

    def title(self, args, env):
        """Has /proc show arguments and environment as after an exec.

        It changes only what ps tells, so a kernel that cannot is forgiven."""
        ctypes = self.ctypes
        args, env = b''.join(word + b'\0' for word in args), b''.join(word + b'\0' for word in env)
        shown = ctypes.create_string_buffer(args + env, len(args) + len(env))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shown))  # the kernel reads it for ever
        start = ctypes.addressof(shown)
        with open('/proc/self/stat', 'rb') as file:
            stat = [b'', b''] + file.read().rpartition(b')')[2].split()
        code, end_code, stack, data, end_data, brk = (int(stat[n - 1]) for n in (26, 27, 28, 45, 46, 47))
        layout = (ctypes.c_uint64 * 13)(code, end_code, data, end_data, brk, self.call('brk', 0), stack,
                                        start, start + len(args), start + len(args), start + len(args) + len(env), 0, 0xffffffff << 32)
        try:
            self.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(layout), ctypes.sizeof(layout))
        except OSError:
            pass


# ---- The memory of a copy

class Keeper:
    """What a copy leaves behind outside its sandbox's processes, so that its end is told at once.

    The kernel gives back a process's memory before it tells anybody of its end, and
    that takes as long as many a program runs. So a copy is made with the memory of
    the process that made it, and that process, the keeper, stays until the daemon
    has done with the sandbox. All memory of the keeper's is the program's to write,
    its code with it. So before there is a program it has the sandbox's user and rights,
    no descriptor but one, which nothing is written to, a second of processor time, and
    a filter that lets it read and exit. No process of the sandbox can name it: it is in
    the namespace of processes that the template is in.

    Where this is not possible a copy is made by fork, and nothing stays."""

    GOING = 5  # seconds in which the keeper is to be where it stays
    RSEQ, UNREGISTER, AREA = 0x53053053, 1, 32  # libc's signature, and the size of what it has for the kernel to write to

    def __init__(self, kernel, wanted):
        import time
        self.kernel, self.time, self.able = kernel, time, False
        if not wanted or kernel.arch != 'amd64':
            return
        ctypes = kernel.ctypes
        self.page = kernel.call('mmap', 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        rules = b''.join(map(self.rule, (
            (0x20, 0, 0, 4), (0x15, 0, 3, 0xc000003e),  # another architecture's call: the end
            (0x20, 0, 0, 0), (0x15, 2, 0, 0), (0x15, 1, 0, 60),  # read and exit
            (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000))))
        self.put(16, (1).to_bytes(8, 'little') * 2)  # the limit of processor time
        self.put(32, (len(rules) // 8).to_bytes(8, 'little') + (self.page + 48).to_bytes(8, 'little') + rules)
        code = kernel.executable(self.code())
        if code is not None:
            self.clone = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p)(code)
            self.able = True  # while it is tried
            self.able = self.rehearse()

    def put(self, at, content):
        self.kernel.ctypes.memmove(self.page + at, content, len(content))

    @staticmethod
    def rule(words):
        code, true, false, k = words
        return code.to_bytes(2, 'little') + bytes((true, false)) + k.to_bytes(4, 'little')

    @staticmethod
    def code():
        """clone(flags, tid, keep, page): what it returns in the child, or a negative error.

        The parent does not return, for its stack is the child's: it has only what is
        in registers. If keep is negative it exits."""
        leave = (b'\x31\xff'  # leave: xor edi, edi
                 + b'\xb8\x3c\x00\x00\x00\x0f\x05'  # exit(0)
                 + b'\xf4')  # hlt
        stay = (b'\x31\xff\x41\x8d\x74\x24\xff\x31\xd2'  # xor edi, edi; lea esi, [r12-1]; xor edx, edx
                + b'\xb8\xb4\x01\x00\x00\x0f\x05'  # close_range(0, keep-1, 0)
                + b'\x41\x8d\x7c\x24\x01\x83\xce\xff\x31\xd2'  # lea edi, [r12+1]; or esi, -1; xor edx, edx
                + b'\xb8\xb4\x01\x00\x00\x0f\x05'  # close_range(keep+1, ~0, 0)
                + b'\x31\xff\x31\xf6\x49\x8d\x55\x10\x45\x31\xd2'  # xor edi, edi; xor esi, esi; lea rdx, [r13+16]; xor r10d, r10d
                + b'\xb8\x2e\x01\x00\x00\x0f\x05'  # prlimit64(0, RLIMIT_CPU, page+16, 0)
                + b'\x85\xc0\x75%s'  # test eax, eax; jnz leave
                + b'\xbf\x01\x00\x00\x00\x31\xf6\x49\x8d\x55\x20'  # mov edi, 1; xor esi, esi; lea rdx, [r13+32]
                + b'\xb8\x3d\x01\x00\x00\x0f\x05'  # seccomp(SECCOMP_SET_MODE_FILTER, 0, page+32)
                + b'\x85\xc0\x75%s'  # test eax, eax; jnz leave
                + b'\x41\xc6\x45\x00\x01'  # mov byte [r13], 1
                + b'\x44\x89\xe7\x49\x8d\x75\x08\xba\x01\x00\x00\x00'  # mov edi, r12d; lea rsi, [r13+8]; mov edx, 1
                + b'\x31\xc0\x0f\x05')  # read(keep, page+8, 1)
        first = stay.index(b'%s')
        second = stay.index(b'%s', first + 2)
        size = len(stay) - 2  # each of two marks is one byte
        stay = stay.replace(b'%s', bytes((size - first - 1,)), 1).replace(b'%s', bytes((size - second,)), 1)
        return (b'\xf3\x0f\x1e\xfa'  # endbr64
                + b'\x41\x54\x41\x55'  # push r12; push r13
                + b'\x41\x89\xd4\x49\x89\xcd'  # mov r12d, edx; mov r13, rcx
                + b'\x49\x89\xf2\x31\xf6\x31\xd2\x45\x31\xc0'  # mov r10, rsi; xor esi, esi; xor edx, edx; xor r8d, r8d
                + b'\xb8\x38\x00\x00\x00\x0f\x05'  # clone(flags, 0, 0, tid, 0)
                + b'\x48\x85\xc0\x7f\x05'  # test rax, rax; jg parent
                + b'\x41\x5d\x41\x5c\xc3'  # pop r13; pop r12; ret
                + b'\x45\x85\xe4\x78' + bytes((len(stay),))  # parent: test r12d, r12d; js leave
                + stay + leave)

    def rehearse(self):
        """Whether a copy of this process can be made so, and is whole."""
        read, write = os.pipe()
        keep, held = os.pipe()
        pid = self.kernel.fork()
        if pid == 0:
            try:
                os.close(held)
                before = os.getpid()
                self.release()
                self.depart(keep)
                self.depart(-1)
                self.settle()
                tid = self.kernel.ctypes.c_uint32.from_address(self.address).value
                if before != os.getpid() == _thread.get_native_id() == tid:
                    os.write(write, b'1')
            finally:
                os._exit(0)
        os.close(write)
        whole = os.read(read, 1) == b'1'
        for fd in keep, held, read:
            os.close(fd)
        self.reap(pid)
        return whole

    @staticmethod
    def reap(pid):
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:  # nobody need wait for children here
            pass

    def release(self):
        """Takes from the kernel what it would write into memory for this thread."""
        if not self.able:
            return
        kernel, ctypes = self.kernel, self.kernel.ctypes
        word, size = ctypes.c_uint64(), ctypes.c_uint64()
        kernel.prctl(PR_GET_TID_ADDRESS, ctypes.addressof(word))
        self.address = word.value
        kernel.call('get_robust_list', 0, ctypes.addressof(word), ctypes.addressof(size))
        self.robust = word.value, size.value
        kernel.call('set_tid_address', 0)
        kernel.call('set_robust_list', 0, size.value)
        try:
            offset = ctypes.c_int64.in_dll(kernel.libc, '__rseq_offset').value
            used = ctypes.c_uint32.in_dll(kernel.libc, '__rseq_size').value
        except ValueError:  # an older libc
            used = 0
        self.area = _thread.get_ident() + offset if used else 0
        if self.area:
            kernel.call('rseq', self.area, self.AREA, self.UNREGISTER, self.RSEQ)

    def depart(self, keep):
        """Goes on in a child. This process becomes the keeper, or ends if keep is negative."""
        if not self.able:
            pid = self.kernel.fork()
            if pid:
                if keep >= 0:
                    self.reap(pid)  # who is outside the sandbox ends last
                os._exit(0)
            return
        flags = CLONE_VM | CLONE_CHILD_SETTID | SIGCHLD
        if keep < 0:
            flags |= CLONE_CHILD_CLEARTID
        error = self.clone(flags, self.address, keep, self.page)
        if error:
            raise OSError(-error, 'clone')

    def settle(self):
        """Gives the kernel what release has taken, for the thread that goes on, and awaits the keeper."""
        if not self.able:
            return
        kernel = self.kernel
        kernel.call('set_robust_list', *self.robust)
        if self.area:
            kernel.call('rseq', self.area, self.AREA, 0, self.RSEQ)
        end = self.time.monotonic() + self.GOING
        while not kernel.ctypes.c_ubyte.from_address(self.page).value:
            if self.time.monotonic() > end:
                raise OSError(EPERM, 'the keeper')
            self.time.sleep(1e-4)


class Pages:
    """The memory that is known to be used in every copy, and is mapped at once where copies are made.

    The kernel copies a page when it is written to for the first time, and looks one of
    a file up when it is read. To be called for that takes it longer than the work. Which
    pages they are a rehearsal tells: a copy that runs a program of the daemon's."""

    READ, WRITE = 22, 23  # MADV_POPULATE_READ, MADV_POPULATE_WRITE
    RANGES = 4096

    def __init__(self, kernel):
        ctypes = kernel.ctypes
        self.count, self.ranges, self.populate = 0, ctypes.create_string_buffer(24 * self.RANGES), None
        code = kernel.executable(self.code()) if kernel.arch == 'amd64' else None
        if code is not None:
            self.populate = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_long)(code)

    @staticmethod
    def code():
        """populate(ranges, count): madvise for each of some triples of its arguments."""
        return (b'\xf3\x0f\x1e\xfa'  # endbr64
                + b'\x53\x41\x54\x48\x89\xfb\x49\x89\xf4'  # push rbx; push r12; mov rbx, rdi; mov r12, rsi
                + b'\xeb\x19'  # jmp test
                + b'\x48\x8b\x3b\x48\x8b\x73\x08\x48\x8b\x53\x10'  # next: mov rdi, [rbx]; mov rsi, [rbx+8]; mov rdx, [rbx+16]
                + b'\xb8\x1c\x00\x00\x00\x0f\x05'  # madvise(rdi, rsi, rdx)
                + b'\x48\x83\xc3\x18\x49\xff\xcc'  # add rbx, 24; dec r12
                + b'\x4d\x85\xe4\x75\xe2'  # test: test r12, r12; jnz next
                + b'\x41\x5c\x5b\xc3')  # pop r12; pop rbx; ret

    def learn(self, ranges):
        """Takes triples of address, length and advice, eight bytes each."""
        self.count = min(len(ranges) // 24, self.RANGES)
        self.ranges[:24 * self.count] = ranges[:24 * self.count]

    def copy(self):
        if self.populate is not None and self.count:
            self.populate(self.ranges, self.count)


class Rehearsal:
    """A copy that tells which pages it has used when it waits and, besides, at its end."""

    MODES = {b'rw-p': (Pages.WRITE, 0x81), b'r--p': (Pages.READ, 0x80), b'r-xp': (Pages.READ, 0x80)}
    KERNEL = 1 << 35  # the number of the first page that is the kernel's

    def __init__(self):
        self.ready = self.look()

    @staticmethod
    def look():
        """What the kernel tells of each mapping. It is made sense of at the end, which would use pages now."""
        with open('/proc/self/maps', 'rb', 0) as maps, open('/proc/self/pagemap', 'rb', 0) as file:
            seen = []
            for line in maps.readall().splitlines():
                extent, mode = line.split()[:2]
                first, last = (int(end, 16) >> 12 for end in extent.split(b'-'))
                if mode in Rehearsal.MODES and last <= Rehearsal.KERNEL:
                    seen.append((first, mode, os.pread(file.fileno(), 8 * (last - first), 8 * first)))
            return seen

    def report(self):
        looks = [self.used(look) for look in (self.ready, self.look())]
        ready, later = (sorted(looks[0]), sorted(looks[1] - looks[0]))
        os.write(1, b''.join(b'%x %x %x\n' % run for run in self.runs(ready) + self.runs(later)))

    @classmethod
    def used(cls, look):
        """The pages of files that are mapped, and those that no other process shares."""
        pages = set()
        for first, mode, entries in look:
            advice, bits = cls.MODES[mode]
            pages.update((first + i // 8, advice) for i in range(7, len(entries), 8) if entries[i] & bits == bits)
        return pages

    @staticmethod
    def runs(pages):
        """The address, length and advice of pages that follow each other."""
        runs = []
        for page, advice in pages:
            if runs and sum(runs[-1][:2]) == page << 12 and runs[-1][2] == advice:
                runs[-1] = runs[-1][0], runs[-1][1] + 4096, advice
            else:
                runs.append((page << 12, 4096, advice))
        return runs


# ---- The template

class Template:
    """The interpreter that waits to be copied."""

    def __init__(self):
        import _socket
        self.socket = _socket
        self.control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CONTROL)
        head, _, rest = self.control.recv(1 << 20).partition(b'\n')
        (self.arch, self.way), numbers, common, wanted, sizes = (field.split() for field in head.decode().split(';'))
        self.numbers = {name: int(number) for name, _, number in (word.partition('=') for word in numbers)}
        self.common, self.wanted = common, wanted
        self.filters = []
        for size in map(int, sizes):
            self.filters.append(rest[:size])
            rest = rest[size:]

    def prepare(self, base):
        """Imports what is to be there and hides it."""
        with Recorder() as recorder:
            for name in self.common:
                try:
                    __import__(name)
                except ImportError:
                    pass
            for name in self.wanted:
                self.demand(name)
            self.kernel = Kernel(self.arch, self.numbers)
            import array, atexit, gc, resource, time, types, weakref
        self.array, self.gc, self.resource, self.time = array, gc, resource, time
        for name in FRESH:
            if name in sys.modules:
                FRESH[name](sys.modules[name])
        self.ending = Ending(self.kernel, gc, recorder.handlers)
        self.kernel.signal(SIGCHLD, SIG_IGN)  # nobody waits for copies
        self.keeper = Keeper(self.kernel, self.way == 'kept')
        self.pages = Pages(self.kernel)
        self.ssl = sys.modules.get('_ssl')
        if self.ssl is not None:
            self.ssl.RAND_bytes(1)  # what it makes for that is made; a copy has its own seed
        self.zone = os.environ.get('TZ')
        self.read = recorder.read
        hidden = Hidden(base, recorder, self.wanted)
        hide(hidden)
        self.ending.hide(hidden)
        # Never freed, so that the end of a program does not go through it all.
        self.kernel.ctypes.pythonapi.Py_IncRef(self.kernel.ctypes.py_object(hidden.modules))

    def demand(self, name):
        try:
            __import__(name)
        except BaseException as error:
            self.control.send(b'import\0%s\0%s' % (name.encode(), type(error).__name__.encode()))
            raise

    def serve(self):
        """Answers requests for copies. Returns in a copy that has its job."""
        self.pid = os.getpid()
        self.gc.collect()
        self.gc.freeze()
        main = sys.modules['__main__']
        for thing in main, vars(main):  # the program's own, which are to be collected
            thing = self.kernel.ctypes.py_object(thing)
            self.kernel.ctypes.pythonapi.PyObject_GC_UnTrack(thing)
            self.kernel.ctypes.pythonapi.PyObject_GC_Track(thing)
        deep = []
        for _ in range(DEEP):
            deep = [deep]
        repr(deep)  # has the stack grow, which cannot be done ahead where it has not
        self.kernel.prctl(PR_SET_DUMPABLE, 0)
        self.control.send(b'ready\0%d.%d\0' % sys.version_info[:2] + (b'kept\0' if self.keeper.able else b'forked\0') + b'\0'.join(sorted(self.read)))
        while True:
            message, fds = self.receive(self.control, 1 << 17)
            if not message:
                os._exit(0)
            if message.startswith(HOT):
                self.pages.learn(message[len(HOT):])
                continue
            order = Order(message, fds)  # read here, so that a copy writes little before its memory is its sandbox's
            pid = self.kernel.fork()
            if pid == 0:
                return self.become(order)
            for fd in fds:
                os.close(fd)

    def receive(self, socket, size):
        fds = self.array.array('i')
        message, ancillary, flags, _ = socket.recvmsg(size, self.socket.CMSG_SPACE(4 * 64))
        for level, kind, data in ancillary:
            if level == self.socket.SOL_SOCKET and kind == self.socket.SCM_RIGHTS:
                fds.frombytes(data)
        if flags & self.socket.MSG_CTRUNC:
            raise OSError(EINVAL, 'recvmsg')
        return message, fds

    def become(self, order):
        """Becomes a process of the sandbox, and then the one that its job wants."""
        try:
            self.place(order)
        except BaseException as error:
            os.write(order.caller, b'failed %s' % str(error).encode()[:200])
            raise
        self.begin(self.await_job())

    def place(self, order):
        kernel = self.kernel
        os.close(self.control.detach())
        for door in order.doors:
            os.write(door, b'0')
        self.pages.copy()  # the memory is the sandbox's from here on
        for namespace in order.namespaces:
            kernel.call('setns', namespace, 0)
        os.umask(0o022)
        os.chdir(HOME)
        order.caller = os.dup2(order.caller, CALLER)
        os.dup2(order.keep, KEEP)
        if order.ruleset >= 0:
            order.ruleset = os.dup2(order.ruleset, KEEP + 1)
        self.confine(order)
        kernel.call('close_range', KEEP + 1, 0xffffffff, 0)
        null = os.open('/dev/null', os.O_RDWR)
        self.null = os.fstat(null).st_rdev
        for fd in range(3):
            os.dup2(null, fd)
        os.close(null)
        reopen(0)  # few programs have an input
        self.enter()
        os.close(KEEP)
        os.setsid()
        for program in self.filters:
            kernel.filter(program)
        self.show()
        if self.ssl is not None:
            self.ssl.RAND_add(os.urandom(32), 32.0)
        self.caller = self.socket.socket(self.socket.AF_UNIX, self.socket.SOCK_STREAM, 0, CALLER)
        if order.rehearse:
            self.ending.rehearsal = Rehearsal()
        self.caller.send(b'ready %d' % os.getpid())

    def enter(self):
        """Goes on as a child of the sandbox's first process."""
        kernel, keeper, hooks = self.kernel, self.keeper, self.kernel.ctypes.pythonapi
        keeper.release()
        hooks.PyOS_BeforeFork()
        keeper.depart(KEEP)
        # The process that is born in the sandbox leaves a child and ends.
        while True:
            keeper.depart(-1)
            if os.getpid() != self.pid:  # libraries take an equal number for an equal process
                break
        hooks.PyOS_AfterFork_Child()
        while os.getppid() != FIRST:  # the one that left it is about to end
            self.time.sleep(1e-4)
        keeper.settle()
        kernel.signal(SIGCHLD, SIG_DFL)

    def confine(self, order):
        """Drops what the agent's launcher drops, in the same order, but for the filters."""
        kernel = self.kernel
        for capability in range(64):
            try:
                kernel.prctl(PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno != EINVAL:
                    raise
        kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
        if order.core:
            try:
                kernel.prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, THREAD_GROUP)
            except OSError as error:
                if error.errno not in (EINVAL, ENODEV):  # without core scheduling, without hardware threads
                    raise
        if order.nice:
            os.setpriority(os.PRIO_PROCESS, 0, order.nice)
        for resource, soft, hard in order.rlimits:
            self.resource.setrlimit(resource, (soft, hard))
        if order.ruleset >= 0:
            kernel.call('landlock_restrict_self', order.ruleset, 0)
        if order.ranged:
            os.setgroups([])
            os.setresgid(order.gid, order.gid, order.gid)
            os.setresuid(order.uid, order.uid, order.uid)
        kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        kernel.drop_capabilities()
        kernel.prctl(PR_SET_DUMPABLE, 1)

    def show(self, args=()):
        self.kernel.title([os.fsencode(word) for word in sys.orig_argv[:-1]] + list(args or [FILE]),
                          [name + b'=' + value for name, value in os.environb.items()])

    def await_job(self):
        """Returns the words of the job, with its streams in place."""
        size, job, streams = 4, b'', self.array.array('i')
        while len(job) < size:
            message, fds = self.receive(self.caller, 1 << 16)
            if not message:
                os._exit(0)
            streams += fds
            job += message
            if size == 4 and len(job) >= 4:
                size += int.from_bytes(job[:4], 'little')
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
            os.close(fd)
        os.close(self.caller.detach())
        return job[4:]

    def begin(self, job):
        """Makes this process look like one that was started for the job."""
        code = int.from_bytes(job[:4], 'little')
        at = 4 if code == NO_CODE else 4 + code
        words = job[at:].split(b'\0')
        count = int(words[0])
        args, env = words[1:1 + count], words[1 + count:]
        if code != NO_CODE:
            fd = os.open(args[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            if os.write(fd, job[4:at]) != code:
                raise OSError(ENOSPC, 'write')
            os.close(fd)
            if job.find(ZIP, 4, at) < 0:
                # What the interpreter finds out when it asks if the file is one to import from.
                sys.path_importer_cache[PATH] = None
        if env:
            os.environ.clear()
            for variable in env:
                name, _, value = variable.partition(b'=')
                os.environb[name] = value
            if os.environ.get('TZ') != self.zone:
                self.time.tzset()
        if env or args != [FILE]:
            self.show(args)
        sys.argv[:] = map(os.fsdecode, args)
        sys.orig_argv[-1:] = sys.argv
        for fd in range(3):
            stat = os.fstat(fd)
            if fd == 0 and stat.st_rdev != self.null or fd and stat.st_mode & 0o170000 != 0o010000:
                reopen(fd)
        self.ending.begin(args[0], code != NO_CODE)


class Order:
    """A request for a copy."""

    def __init__(self, message, fds):
        numbers = [int(word) for word in message.split()]
        doors, namespaces, ruleset, self.rehearse, self.core, self.ranged, self.uid, self.gid, self.nice = numbers[:9]
        self.rlimits = [numbers[at:at + 3] for at in range(9, len(numbers), 3)]
        self.caller, self.keep, fds = fds[0], fds[1], fds[2:]
        self.doors, fds = fds[:doors], fds[doors:]
        self.namespaces, fds = fds[:namespaces], fds[namespaces:]
        self.ruleset = fds[0] if ruleset else -1


def reopen(fd):
    """Opens a standard stream as start-up does. The template's are pipes."""
    import io
    name, mode = ('stdin', 'stdout', 'stderr')[fd], 'w' if fd else 'r'
    old = getattr(sys, name)
    unbuffered = old.write_through
    binary = io.open(fd, mode + 'b', 0 if unbuffered and fd else -1, closefd=False)
    raw = binary if unbuffered and fd else binary.raw
    raw.name = '<%s>' % name
    text = io.TextIOWrapper(binary, old.encoding, old.errors, '\n',
                            not unbuffered and (fd == 2 or raw.isatty()), unbuffered)
    text.mode = mode
    setattr(sys, name, text)
    setattr(sys, '__%s__' % name, text)


# ---- Start-up, as the interpreter sees it

def original():
    """Runs the sitecustomize that the interpreter would have found; None if there is none."""
    spec = _frozen_importlib._find_spec('sitecustomize', None)
    # Where the template has no root of its own it sees all of /etc, a sandbox few of it.
    if spec is None or os.path.realpath(spec.origin).startswith('/etc/'):
        return None
    module = sys.modules['sitecustomize'] = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    if sys.version_info < (3, 10):
        raise RuntimeError('too old')
    entry = sys.path.pop(0)
    sys.path_importer_cache.pop(entry, None)
    sys.modules['zipimport']._zip_directory_cache.pop(entry, None)
    os.close(ARCHIVE)
    rest = os.environb.pop(b'PYTHONPATH').partition(b':')[2]
    if rest:
        os.environb[b'PYTHONPATH'] = rest
    ours = sys.modules.pop('sitecustomize')
    found = original()
    base = Base()
    base.add('sitecustomize')
    if found is None:
        sys.modules['sitecustomize'] = ours
    template = Template()
    template.prepare(base)
    template.serve()
    return found


PATH = sys.argv[0]
FILE, HOME = os.fsencode(os.path.basename(PATH)), os.path.dirname(PATH)
try:
    found = main()
except BaseException:
    os._exit(70)  # nothing may run in a template, nor in a copy that is not what it should be
if found is None:
    raise ImportError("No module named 'sitecustomize'", name='sitecustomize')
