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
    Another exit status comes from an uncaught exception. The interpreter then sets sys.last_value,
    which changes the version of the dictionary of sys; or the program has called sys.exit; or the
    interpreter has read SystemExit.code and frees the exception unless it is still referenced. A
    Python wrapper around sys.exit or SystemExit would be visible to the program. So their entries in
    the interpreter's tables lead to machine code that clears a flag (machine_code.py). The same
    holds for functions after which a program could observe this exit, or load libraries with exit
    handlers.

    In all other cases, and in doubt, the interpreter finalizes itself."""

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
    # Offsets of CPython's object layout, in bytes. After the 16 bytes of PyObject_HEAD, a builtin
    # function has its PyMethodDef, and a dictionary its length and, 8 bytes later, its version.
    HEAD = 16
    DEALLOC, GETATTRO, INIT = 48, 144, 296  # tp_dealloc, tp_getattro, tp_init in PyTypeObject
    HAVE_GC = 1 << 14  # Py_TPFLAGS_HAVE_GC
    HEAPTYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: objects hold a reference to their type

    def __init__(self, kernel, machine, gc, handlers):
        import atexit
        import io
        import types
        import weakref
        self.kernel, self.machine, self.gc, self.handlers, self.profile = kernel, machine, gc, handlers, None
        self.objects, self.callbacks, self.garbage, self.references = gc.get_objects, gc.callbacks, gc.garbage, sys.getrefcount
        self.threads, self.frame, self.exit, self.fflush = _thread._count, sys._getframe, os._exit, kernel.libc.fflush
        self.count = atexit._ncallbacks
        self.mro, self.namespace = (type.__dict__[name].__get__ for name in ('__mro__', '__dict__'))
        inert = (dict, list, tuple, set, frozenset, types.FunctionType, types.BuiltinFunctionType, types.CellType,
                 types.ModuleType, types.MethodType, types.MappingProxyType, types.GetSetDescriptorType,
                 types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
                 property, staticmethod, classmethod, io.StringIO, io.BytesIO)
        self.inert = {id(kind) for kind in inert}
        self.suspended = {id(kind) for kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)}
        self.reference, self.callback = weakref.ref, weakref.ref.__callback__.__get__
        self.text, self.builtin = io.TextIOWrapper, types.BuiltinFunctionType
        self.file, self.buffered = io.FileIO, {id(kind) for kind in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)}
        self.armed = bytearray(1)  # the flag that machine code clears
        self.untracked = [kind for kind in type.__subclasses__(object) if '__del__' in vars(kind) and not kind.__flags__ & self.HAVE_GC]
        self.able = self.supported() and self.watch()
        if self.able:
            # Builtin functions call leave only if the flag is set, so that otherwise no frame of
            # this file is on the stack.
            atexit.register(any, map(self.leave, filter(None, self.armed)))
            atexit._ncallbacks = lambda: max(self.count() - 1, 0)

    def supported(self):
        """Whether the layouts above hold for this interpreter."""
        if not (3, 10) <= sys.version_info[:2] <= (3, 13) or sys.implementation.name != 'cpython':
            return False
        if not self.machine.enabled or sys.abiflags or sys._xoptions:
            return False
        if sys.flags.verbose or sys.flags.inspect or sys.flags.dev_mode or 'PYTHONMALLOCSTATS' in os.environ:
            return False
        before = self.sys_version()
        sys.last_value = None
        between = self.sys_version()
        del sys.last_value
        return before != between != self.sys_version() != before

    def sys_version(self):
        """The version of the dictionary of sys, which each change of the dictionary changes."""
        return self.kernel.ctypes.c_uint64.from_address(id(vars(sys)) + self.HEAD + 8).value

    def watch(self):
        """Redirects table entries to code that clears the flag. False if that is not possible."""
        import _ctypes
        import _imp
        ctypes = self.kernel.ctypes
        def slot(kind, at):
            return ctypes.c_void_p.from_address(id(kind) + at)
        if slot(SystemExit, self.GETATTRO).value != ctypes.cast(ctypes.pythonapi.PyObject_GenericGetAttr, ctypes.c_void_p).value:
            return False
        entries = [slot(SystemExit, self.GETATTRO), slot(SystemExit, self.DEALLOC)]
        # Objects of these types have finalizers, and the garbage collector does not list them.
        # Objects of a heap type are counted instead, by the references to the type.
        entries += [slot(kind, self.INIT) for kind in self.untracked if not kind.__flags__ & self.HEAPTYPE]
        self.untracked = [kind for kind in self.untracked if kind.__flags__ & self.HEAPTYPE]
        for module, names in ((sys, ('exit', 'addaudithook', 'settrace', 'setprofile', '_settraceallthreads', '_setprofileallthreads')),
                              (getattr(sys, 'monitoring', None), ('use_tool_id',)),
                              (self.gc, ('freeze', 'unfreeze', 'set_debug')),
                              (_imp, ('create_dynamic', 'create_builtin')), (_ctypes, ('dlopen',))):
            for name in names:
                function = getattr(module, name, None)
                if function is None:
                    continue
                method = ctypes.c_void_p.from_address(id(function) + self.HEAD).value  # its PyMethodDef
                if type(function) is not self.builtin or ctypes.c_char_p.from_address(method).value != name.encode():
                    return False
                entries.append(ctypes.c_void_p.from_address(method + 8))
        flag = ctypes.addressof(ctypes.c_char.from_buffer(self.armed))
        detours = [detour_code(flag, entry.value) for entry in entries]
        page = self.machine.load(b''.join(detours))
        if page is None:
            return False
        for entry, code in zip(entries, detours):
            entry.value = page
            page += len(code)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
        return True

    def begin(self, file, regular):
        """Sets the flag. Called before the program starts; regular: file is known to be a regular file."""
        try:
            if not regular:
                fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                regular = os.fstat(fd).st_mode & 0o170000 == 0o100000
                os.close(fd)
        except OSError:
            pass
        # If the file is not regular, the interpreter may exit with another status.
        self.armed[0] = self.able and regular
        self.known = set()
        self.streams = sys.stdin, sys.stdout, sys.stderr
        for stream in self.streams:
            self.known |= {id(stream), id(stream.buffer), id(getattr(stream.buffer, 'raw', None))}
        self.alive = [self.references(kind) for kind in self.untracked]
        self.version = self.sys_version()

    def ignore(self, hidden):
        """Sets the modules that count only once they are no longer hidden."""
        self.hidden = hidden
        self.risky = [name for name, module in hidden.modules.items() if module is not None and self.is_risky(name, module)]

    def is_risky(self, name, module):
        spec = getattr(module, '__spec__', None)
        loader, package = getattr(spec, 'loader', None), getattr(spec, 'name', name).partition('.')[0]
        return (name not in self.HARMLESS and package not in self.PACKAGES
                and (loader is _frozen_importlib.BuiltinImporter or type(loader) is _frozen_importlib_external.ExtensionFileLoader))

    def leave(self, _):
        """The last exit handler, called only if the flag is still set."""
        try:
            if self.certain() and self.tidy():
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
        return self.sys_version() == self.version and self.frame(1).f_back is None and self.unchanged()

    def unchanged(self):
        """Whether the program has left no threads, exit handlers, collector callbacks or counted objects."""
        return (not self.threads() and self.count() <= 1 + self.handlers[0] and not self.callbacks and not self.garbage
                and not type.__subclasses__(SystemExit) and [self.references(kind) for kind in self.untracked] == self.alive)

    def tidy(self):
        """Whether no object of the program has an effect when it is freed."""
        seen = [name for name in self.risky if name not in self.hidden.modules]
        if seen and not (seen == ['_ctypes'] and 'numpy' in sys.modules):  # numpy imports _ctypes for itself
            return False
        for stream in self.streams:
            if type(stream) is not self.text or stream.closed or self.changed(stream):
                return False
        objects = self.objects()
        if len(objects) > self.MAX_OBJECTS:
            return False
        finalizers = {}  # cache of has_finalizer
        for thing in objects:
            kind = type(thing)
            if id(kind) in self.inert:
                continue
            if id(kind) in self.suspended:
                return False
            if issubclass(kind, self.reference):
                if self.has_callback(thing):
                    return False
            elif (self.has_finalizer(kind, finalizers) or issubclass(kind, type) and self.has_finalizer(thing, finalizers)) and not self.is_closed(thing):
                return False
        return True

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
