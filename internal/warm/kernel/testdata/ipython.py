# Runs the cells of a JSON list on the standard input in IPython's InteractiveShell and prints what
# each shows, in the form of the test: outputs, "[text +kinds]" of results, "!name: value" of errors.
# A cell that begins with "# interrupted" gets SIGINT when it has printed "up".
import faulthandler, fcntl, json, os, signal, subprocess, sys, tempfile, threading, time

answers = os.fdopen(os.dup(1), "w")
# The test ends this program after 10 minutes. What hangs is known before.
faulthandler.dump_traceback_later(540, exit=True, file=os.fdopen(os.dup(2), "w"))
cells = json.load(sys.stdin)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.displaypub import DisplayPublisher
from IPython.core.displayhook import DisplayHook
from traitlets.config import Config

KINDS = {"text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "text/latex": "latex", "application/javascript": "javascript", "image/png": "png",
         "image/jpeg": "jpeg", "application/pdf": "pdf", "application/json": "json"}
events = []


class Stream:
    """A standard descriptor as a file, so that the output of children is there too."""

    def __init__(self, fd):
        self.file = tempfile.TemporaryFile(buffering=0)
        fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
        os.dup2(self.file.fileno(), fd)
        self.text = open(fd, "w", 1, encoding="utf-8", closefd=False)

    def read(self):
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), size, 0)

    def take(self):
        self.text.flush()
        data = self.read()
        self.file.truncate(0)
        return data.decode()


out, err = Stream(1), Stream(2)
sys.stdout = sys.__stdout__ = out.text
sys.stderr = sys.__stderr__ = err.text


def flush():
    for stream, mark in ((out, ""), (err, "2:")):
        text = stream.take()
        if text:
            events.append(mark + text)


def show(data, main):
    flush()
    text = "[" + data.get("text/plain", "")
    for mime, kind in KINDS.items():
        if mime in data:
            text += " +" + kind
    events.append(text + ("]" if main else " (displayed)]"))


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **kwargs):
        show(data, False)


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, data, metadata=None):
        show(data, True)

    def finish_displayhook(self):
        pass


class Shell(InteractiveShell):
    displayhook_class = Hook
    display_pub_class = Publisher

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        kind, value, _ = self._get_exc_info(exc_tuple)
        flush()
        events.append("!%s: %s" % (kind.__name__, value))

    showsyntaxerror = showtraceback

    def system(self, command):
        sys.stdout.flush()
        subprocess.run(self.var_expand(command, depth=1), shell=True)


def interrupt(ended):
    while not ended.is_set():
        if b"up\n" in out.read():
            os.kill(os.getpid(), signal.SIGINT)
            ended.wait(10)  # again then: a signal just before a system call need not end its sleep
        time.sleep(0.01)


settings = Config()
settings.HistoryManager.enabled = False  # its thread can miss the end, which then waits for it
shell = Shell.instance(config=settings)
shell.display_formatter.active_types = list(KINDS) + ["text/plain"]
shell.enable_gui = lambda *a: None
results = []
for code in cells:
    events.clear()
    ended = threading.Event()
    if code.startswith("# interrupted"):
        threading.Thread(target=interrupt, args=(ended,)).start()
    shell.run_cell(code, store_history=True)
    ended.set()
    flush()
    results.append("".join(events))
json.dump(results, answers)
answers.close()
os._exit(0)  # without waiting for threads
