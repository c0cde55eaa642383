# Runs the template as the sitecustomize of an interpreter started as "python3 FILE", at the end of
# start-up and before the interpreter opens FILE. In a copy that has its program this module returns:
# all that follows, from opening FILE to the exit status, is the interpreter's own code, with no
# frame of these modules below it on the stack.
import os
import sys
import _frozen_importlib

ARCHIVE = 4  # the descriptor of the zip file with this code


def run_original():
    """Runs the sitecustomize that the interpreter would have found; None if there is none."""
    spec = _frozen_importlib._find_spec('sitecustomize', None)
    # A template without a root of its own sees all of the host's /etc; a sandbox sees little of it.
    if spec is None or os.path.realpath(spec.origin).startswith('/etc/'):
        return None
    module = sys.modules['sitecustomize'] = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    if sys.version_info < (3, 9):
        raise RuntimeError('too old')
    entry = sys.path.pop(0)
    sys.path_importer_cache.pop(entry, None)
    sys.modules['zipimport']._zip_directory_cache.pop(entry, None)
    os.close(ARCHIVE)
    rest = os.environb.pop(b'PYTHONPATH').partition(b':')[2]
    if rest:
        os.environb[b'PYTHONPATH'] = rest
    ours = sys.modules.pop('sitecustomize')
    found = run_original()
    base = BaseModules()
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
    os._exit(70)  # after an error neither a template nor a copy may run anything
if found is None:
    raise ImportError("No module named 'sitecustomize'", name='sitecustomize')
