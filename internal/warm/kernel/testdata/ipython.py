# Runs the cells of a JSON list on the standard input in IPython's InteractiveShell and prints what
# each shows, in the form of the test: outputs, "[text +kinds]" of results, "!name: value" of errors.
import contextlib, io, json, sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.displaypub import DisplayPublisher
from IPython.core.displayhook import DisplayHook

KINDS = {"text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "text/latex": "latex", "application/javascript": "javascript", "image/png": "png",
         "image/jpeg": "jpeg", "application/pdf": "pdf", "application/json": "json"}
events = []


def show(data, main):
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
        flush()
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
        import subprocess
        out.write(subprocess.run(self.var_expand(command, depth=1), shell=True, stdout=subprocess.PIPE).stdout.decode())


out, err = io.StringIO(), io.StringIO()


def flush():
    for stream, mark in ((out, ""), (err, "2:")):
        if stream.getvalue():
            events.append(mark + stream.getvalue())
            stream.seek(0)
            stream.truncate()


cells = json.load(sys.stdin)
shell = Shell.instance()
shell.history_manager.enabled = False
shell.display_formatter.active_types = list(KINDS) + ["text/plain"]
shell.enable_gui = lambda *a: None
results = []
for code in cells:
    events.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        shell.run_cell(code, store_history=True)
    flush()
    results.append("".join(events))
json.dump(results, sys.stdout)
