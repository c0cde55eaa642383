# Ends a program without the interpreter's finalization, if the program cannot tell the difference.
import builtins
import os
import sys
import _thread
import _frozen_importlib
import _frozen_importlib_external

# The functions below use a copy of the built-in functions, which the program cannot replace.
__builtins__ = dict(vars(builtins))


class FastExit:
    """Leaves with _exit(0) after the program's last exit handler, if finalization would be invisible.

    Finalization frees all objects. In a copy, each write makes the kernel copy a page that is freed
    a moment later: about a thousand pages. The visible parts of finalization are exit handlers,
    flushed streams and finalizers of objects. FastExit runs after the last exit handler, flushes the
    streams itself, and requires that no object has a finalizer.

    It also requires that the exit status is 0, which is so if the main module has run to its end.
    Then the interpreter has removed __file__ from the module, which it does not do for SystemExit
    (CPython 3.14 does). Any other uncaught exception raises the audit event sys.excepthook.

    An audit hook notes that event, and those after which the program could observe this exit or has
    loaded a library with exit handlers. The hook is the method pop of a dictionary of these events:
    it keeps no reference to an argument, and no frame of this file is ever on a program's stack.

    In all other cases, and in doubt, the interpreter finalizes itself."""

    EVENTS = ('sys.excepthook', 'sys.addaudithook', 'sys.settrace', 'sys.setprofile', 'sys.monitoring.register_callback', 'ctypes.dlopen')
    MAX_OBJECTS = 10000  # with more objects than this the interpreter finalizes itself
    # Extension modules whose objects hold only memory and descriptors, or have __del__. Objects of
    # other extension modules may have any effect when they are freed.
    HARMLESS = frozenset('''
        _abc _ast _asyncio _bisect _blake2 _bz2 _codecs _collections _contextvars _csv _datetime _decimal
        _elementtree _functools _hashlib _heapq _imp _io _json _locale _lzma _md5 _opcode _operator _pickle
        _posixsubprocess _queue _random _sha1 _sha2 _sha256 _sha3 _sha512 _signal _socket _sre _ssl _stat
        _statistics _string _struct _thread _tokenize _typing _uuid _warnings _weakref _zoneinfo array atexit
        binascii builtins cmath errno fcntl gc grp itertools marshal math mmap posix pwd pyexpat resource select sys
        termios time unicodedata zlib'''.split())
    PACKAGES = 'numpy', 'pandas'  # packages with harmless extension modules
    HAVE_GC = 1 << 14  # Py_TPFLAGS_HAVE_GC
    HEAPTYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: objects hold a reference to their type

    def __init__(self, kernel, gc, handlers):
        import atexit
        import io
        import types
        import weakref
        self.handlers, self.profile = handlers, None
        self.objects, self.callbacks, self.garbage, self.references = gc.get_objects, gc.callbacks, gc.garbage, sys.getrefcount
        self.threads, self.frame, self.exit, self.fflush = _thread._count, sys._getframe, os._exit, kernel.libc.fflush
        self.count, self.debug = atexit._ncallbacks, gc.get_debug
        self.mro, self.namespace = (type.__dict__[name].__get__ for name in ('__mro__', '__dict__'))
        self.module, self.spec = types.ModuleType, _frozen_importlib.ModuleSpec
        self.contents = types.ModuleType.__dict__['__dict__'].__get__
        inert = (dict, list, tuple, set, frozenset, types.FunctionType, types.BuiltinFunctionType, types.CellType,
                 types.ModuleType, types.MethodType, types.MappingProxyType, types.GetSetDescriptorType,
                 types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
                 property, staticmethod, classmethod, io.StringIO, io.BytesIO)
        self.inert = {id(kind) for kind in inert}
        self.suspended = {id(kind) for kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)}
        self.reference, self.callback = weakref.ref, weakref.ref.__callback__.__get__
        self.text, self.builtin = io.TextIOWrapper, types.BuiltinFunctionType
        self.file, self.buffered = io.FileIO, {id(kind) for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)}
        # Types with finalizers whose objects the garbage collector does not list. Objects are counted
        # by the references to the type, or, in versions before 3.12, are sockets.
        unlisted = [kind for kind in type.__subclasses__(object) if '__del__' in vars(kind) and not kind.__flags__ & self.HAVE_GC]
        self.counted = [kind for kind in unlisted if kind.__flags__ & self.HEAPTYPE]
        self.sockets = len(self.counted) < len(unlisted)
        self.list, self.stat = os.listdir, os.fstat
        self.pending = {}  # the events that have not happened
        if self.supported():
            sys.addaudithook(self.pending.pop)
            # leave is called only if none has happened, so that nothing observes its frame.
            atexit.register(any, map(self.leave, filter(len(self.EVENTS).__eq__, map(len, [self.pending]))))
            atexit._ncallbacks = lambda: max(self.count() - 1, 0)

    @staticmethod
    def supported():
        return (sys.version_info[:2] <= (3, 13) and sys.implementation.name == 'cpython' and not sys.abiflags and not sys._xoptions
                and not (sys.flags.verbose or sys.flags.inspect or sys.flags.dev_mode or 'PYTHONMALLOCSTATS' in os.environ))

    def begin(self, file, regular):
        """Called before the program starts; regular: file is known to be a regular file."""
        try:
            if not regular:
                fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                regular = os.fstat(fd).st_mode & 0o170000 == 0o100000
                os.close(fd)
        except OSError:
            pass
        self.canary = []  # an object that the garbage collector lists
        self.known = {id(self.canary)}
        self.streams = sys.stdin, sys.stdout, sys.stderr
        for stream in self.streams:
            self.known |= {id(stream), id(stream.buffer), id(getattr(stream.buffer, 'raw', None))}
        self.alive = [self.references(kind) for kind in self.counted]
        self.base, self.main = set(sys.modules), id(sys.modules['__main__'])
        # If the file is not regular, the interpreter may exit with another status.
        if regular:
            self.pending.update(dict.fromkeys(self.EVENTS))

    def leave(self, _):
        """The last exit handler."""
        try:
            if self.certain() and self.unchanged() and self.tidy():
                sys.stdout.flush()
                sys.stderr.flush()
                self.fflush(None)
                if self.profile is not None:
                    self.profile.report()
                self.exit(0)
        except BaseException:
            pass  # the interpreter meets the same error and reports it

    def certain(self):
        """Whether the main module has run to its end, and no exit handler hides another ending."""
        if type(sys.modules) is not dict or id(sys.modules.get('__main__')) != self.main or self.frame(1).f_back is not None:
            return False
        names = self.contents(sys.modules['__main__']).keys()
        return '__name__' in names and not {'__file__', '__cached__'} & names and not hasattr(sys, 'last_value')

    def unchanged(self):
        """Whether the program has left no threads, exit handlers, collector callbacks or counted objects."""
        return (not self.threads() and self.count() <= 1 + self.handlers[0] and not self.callbacks and not self.garbage and not self.debug()
                and [self.references(kind) for kind in self.counted] == self.alive)

    def is_risky(self, name, module):
        """Whether it is an extension module that is not known to be harmless."""
        if type(module) is not self.module:
            return False
        spec = self.contents(module).get('__spec__')
        if type(spec) is not self.spec or name in self.HARMLESS or spec.name.partition('.')[0] in self.PACKAGES:
            return False
        return spec.loader is _frozen_importlib.BuiltinImporter or type(spec.loader) is _frozen_importlib_external.ExtensionFileLoader

    def tidy(self):
        """Whether no object of the program has an effect when it is freed."""
        risky = [name for name, module in sys.modules.items() if name not in self.base and self.is_risky(name, module)]
        if risky and not (risky == ['_ctypes'] and 'numpy' in sys.modules):  # numpy imports _ctypes for itself
            return False
        if self.sockets and '_socket' in sys.modules and self.has_socket():
            return False
        for stream, now in zip(self.streams, (sys.stdin, sys.stdout, sys.stderr)):
            if stream is not now or type(stream) is not self.text or stream.closed or self.changed(stream):
                return False
        objects = self.objects()
        if len(objects) > self.MAX_OBJECTS:
            return False
        listed, finalizers = False, {}  # finalizers: cache of has_finalizer
        for thing in objects:
            kind = type(thing)
            if id(kind) in self.inert:
                listed = listed or thing is self.canary
                continue
            if id(kind) in self.suspended:
                return False
            if issubclass(kind, self.reference):
                if self.has_callback(thing):
                    return False
            elif (self.has_finalizer(kind, finalizers) or issubclass(kind, type) and self.has_finalizer(thing, finalizers)) and not self.is_closed(thing):
                return False
        return listed  # not after gc.freeze

    def has_socket(self):
        for fd in map(int, self.list('/proc/self/fd')):
            try:
                if self.stat(fd).st_mode & 0o170000 == 0o140000:
                    return True
            except OSError:
                pass  # the descriptor of the listing
        return False

    @staticmethod
    def changed(stream):
        """Whether the program has set attributes, and so maybe methods, of a stream."""
        buffer = stream.buffer
        raw = getattr(buffer, 'raw', buffer)
        return not (vars(stream).keys() <= {'mode'} and vars(buffer).keys() <= {'name'} and vars(raw).keys() <= {'name'})

    def is_closed(self, thing):
        """Whether it is a standard stream, or a closed file."""
        if id(thing) in self.known:
            return True
        if type(thing) is self.text:
            thing = thing.buffer
        if id(type(thing)) in self.buffered:
            thing = thing.raw
        return type(thing) is self.file and thing.closed

    def has_callback(self, reference):
        """Whether a weak reference has a callback with an effect of its own."""
        callback = self.callback(reference)
        return callback is not None and not (type(callback) is self.builtin and callback.__name__ == '_destroy')

    def has_finalizer(self, kind, finalizers):
        """Whether objects of a type have __del__. It runs no code of the program."""
        if id(kind) not in finalizers:
            finalizers[id(kind)] = any('__del__' in self.namespace(base) for base in self.mro(kind))
        return finalizers[id(kind)]
