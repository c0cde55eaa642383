# The sitecustomize of an interpreter started as "python3 FILE" before FILE exists; start-up ends with
# it. It reads the program's arguments, environment and directory from the standard input, and its text
# if this code is to write FILE, undoes all changes that a program could observe, and returns. All
# that follows, from opening FILE, is the interpreter's own code.
import os
import sys


def receive(size):
    got = b''
    while len(got) < size:
        part = os.read(0, size - len(got))
        if not part:
            os._exit(0)  # the sandbox is not used
        got += part
    return got


def message():
    return receive(int(receive(8), 16))


def without_input():
    """Opens the standard input as in a program without input."""
    import io
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    old = sys.stdin
    binary = io.open(0, 'rb', -1, closefd=False)
    binary.raw.name = '<stdin>'
    text = io.TextIOWrapper(binary, old.encoding, old.errors, '\n')
    text.mode = 'r'
    sys.stdin = sys.__stdin__ = text


def original():
    """Runs the sitecustomize that the interpreter would have found; False if there is none."""
    import _frozen_importlib
    spec = _frozen_importlib._find_spec('sitecustomize', None)
    if spec is None:
        return False
    module = sys.modules['sitecustomize'] = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return True


def main():
    entry = sys.path.pop(0)
    sys.path_importer_cache.pop(entry, None)
    sys.modules['zipimport']._zip_directory_cache.pop(entry, None)
    os.unlink(entry)
    del os.environ['PYTHONPATH']
    os.write(1, b'READY_MARK')
    file, stdin, where, count, *rest = message().split(b'\0')
    if file:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        text = message()
        while text:
            text = text[os.write(fd, text):]
        os.close(fd)
    count = int(count)
    sys.argv += map(os.fsdecode, rest[:count])
    sys.orig_argv += sys.argv[1:]
    for pair in rest[count:]:
        name, _, value = pair.partition(b'=')
        os.environb[name] = value
    if where:
        os.chdir(where)
    if stdin == b'none':
        without_input()
    del sys.modules['sitecustomize']


try:
    main()
except BaseException as e:
    # After an exception start-up would continue, with the wrong arguments and environment.
    os.write(2, b'sandbar: preparing the interpreter: %s\n' % str(e).encode())
    os._exit(70)
if not original():
    raise ImportError("No module named 'sitecustomize'", name='sitecustomize')
