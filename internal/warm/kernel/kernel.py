# The Python interpreter of a context. It runs with the standard library of CPython 3.9 or later.
#
# The host writes requests to the standard input and reads frames from the standard output (see
# frame.go). Both move to descriptors that programs do not inherit. Descriptors 1 and 2 become
# pipes, so everything that a cell, its libraries and its children write arrives as output.

import sys

_path = sys.path[:]
sys.path[:] = [p for p in sys.path if p]  # no module of the working directory replaces one of ours

import ast
import base64
import builtins
import fcntl
import json
import linecache
import os
import re
import select
import signal
import struct
import threading
import time
import traceback
import types

sys.path[:] = _path


class StdinNotImplementedError(NotImplementedError):
    """A cell asked for input, and there is none."""


class UsageError(Exception):
    """A magic command that does not exist here."""


def _main():
    os_read, os_write, os_getpid, dumps, loads, monotonic = os.read, os.write, os.getpid, json.dumps, json.loads, time.monotonic
    pid = os_getpid()
    MAX_DISPLAY = 8 << 20  # of a frame; see frame.go
    MAX_ERROR = 128 << 10
    KEEP = 1000  # cells in In, Out and linecache

    # ---- the channel

    channel_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 200)
    channel_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 200)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    pipes = {}  # read end: kind of frame
    for fd, kind in ((1, b"o"), (2, b"e")):
        r, w = os.pipe()
        os.dup2(w, fd)  # inheritable
        os.close(w)
        high = fcntl.fcntl(r, fcntl.F_DUPFD_CLOEXEC, 200)
        os.close(r)
        os.set_blocking(high, False)
        pipes[high] = kind
    wake_r, wake_w = os.pipe()  # wakes the thread of forward; gets a byte for each signal too
    os.set_blocking(wake_r, False)
    os.set_blocking(wake_w, False)
    main_thread = threading.get_ident()

    lock = threading.RLock()
    no_flush = threading.Lock()  # released by forward when it wants a flush
    no_flush.acquire()

    class State:
        running = False  # a cell runs: SIGINT interrupts it
        critical = 0  # the main thread writes a frame: SIGINT waits
        pending = False
        dead = False
        asked = None  # time at which forward saw a SIGINT that has not been handled
        handled = False  # the handler has run during this cell

    def on_sigint(number, frame):
        if os_getpid() != pid:
            raise KeyboardInterrupt
        State.handled = True
        if State.critical:
            State.pending = True
        elif State.running:
            loop = loop_of(frame)
            if loop is None:
                raise KeyboardInterrupt
            State.pending = True
            loop.call_soon_threadsafe(raise_pending)

    asyncio_dir = os.path.join(os.path.dirname(os.__file__), "asyncio", "")

    def loop_of(frame):
        """Returns the loop that runs in frame, or None if code of the cell or of a library runs there.

        An exception in the loop's own code can lose the callback that the loop is about to call,
        and the task that waits for it never ends."""
        outside = False
        while frame is not None:
            code = frame.f_code
            inside = code.co_filename.startswith(asyncio_dir)
            if inside and code.co_name == "run_forever":
                loop = frame.f_locals.get("self")
                return loop if loop is not None and loop.is_running() else None
            if inside and code.co_name == "_run" and outside:  # the loop has called other code
                return None
            outside = outside or not inside
            frame = frame.f_back
        return None

    def raise_pending():
        """Raises the interrupt that on_sigint did not raise, if there is one."""
        if State.pending and State.running:
            State.pending = False
            raise KeyboardInterrupt

    def guarded(f, *args):
        """Calls f without an interrupt in the middle."""
        main = threading.current_thread() is threading.main_thread()
        if main:
            State.critical += 1
        try:
            return f(*args)
        finally:
            if main:
                State.critical -= 1
                if not State.critical:
                    raise_pending()

    def write_frame(kind, data):
        with lock:
            left = memoryview(kind + struct.pack(">I", len(data)) + data)
            while left:
                left = left[os_write(channel_out, left):]

    def send(kind, data):
        if os_getpid() == pid:  # not in a fork
            guarded(write_frame, kind, data)

    def drain():
        """Sends everything that is in the pipes."""
        with lock:
            for fd, kind in pipes.items():
                while True:
                    try:
                        data = os_read(fd, 65536)
                    except BlockingIOError:
                        break
                    if not data:
                        break
                    write_frame(kind, data)

    def forward():
        poll = select.poll()
        for fd in pipes:
            poll.register(fd, select.POLLIN)
        poll.register(wake_r, select.POLLIN)
        while True:
            # Text without a line end becomes visible after 100 ms.
            for fd, _ in poll.poll(100 if State.running else None) or [(None, 0)]:
                if fd is None:
                    if no_flush.locked():
                        no_flush.release()
                elif fd == wake_r:
                    with lock:
                        if signal.SIGINT in read_wakes() and not State.handled:
                            State.asked = monotonic()
                else:
                    drain()
            repeat_interrupt()

    def flush_for_forward():
        """Flushes the streams when forward asks for it.

        A flush waits for the end of a write of another thread. That one waits for forward, which
        empties the pipe."""
        while True:
            no_flush.acquire()
            flush_streams()

    def read_wakes():
        """Returns the bytes in the pipe that wakes forward."""
        data = b""
        while True:
            try:
                data += os_read(wake_r, 1024)
            except BlockingIOError:
                return data

    def repeat_interrupt():
        """Sends SIGINT again if it came just before the main thread began a system call.

        CPython calls the handler between two instructions. A signal after the last check does not
        end a system call that begins then, such as that of time.sleep."""
        with lock:
            late = State.running and not State.handled and State.asked and monotonic() - State.asked > 0.1
            if late and signal.getsignal(signal.SIGINT) is on_sigint:
                State.asked = monotonic()
                signal.pthread_kill(main_thread, signal.SIGINT)

    def wake_on_signals():
        """Makes signals write to the pipe of forward. A loop of asyncio may have changed that."""
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)

    def stop_waking():
        """Keeps the signals of a fork out of the pipe of forward."""
        try:
            signal.set_wakeup_fd(-1)
        except ValueError:
            pass  # not in the main thread

    def flush_streams():
        for stream in (stdout, stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def flush():
        """Sends all output that the cell has written so far."""
        if os_getpid() == pid:
            seen = [stdout, stderr]
            for stream in (sys.stdout, sys.stderr):
                if stream not in seen:
                    try:
                        stream.flush()
                    except Exception:
                        pass
            flush_streams()
            guarded(drain)

    def read_exactly(n):
        parts = []
        while n:
            part = os_read(channel_in, min(n, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def text_stream(fd, buffering):
        return open(fd, "w", buffering, encoding="utf-8", errors="backslashreplace", closefd=False)

    stdout = sys.stdout = sys.__stdout__ = text_stream(1, 1)
    stderr = sys.stderr = sys.__stderr__ = text_stream(2, 1)
    sys.stdin = sys.__stdin__ = open(0, "r", closefd=False)

    # ---- formats of values

    FIELDS = {
        "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
        "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
        "application/json": "json", "application/javascript": "javascript",
        "application/vnd.sandbar.data": "data", "application/vnd.sandbar.chart": "chart",
    }
    BINARY = ("png", "jpeg", "pdf")
    OBJECTS = ("json", "data", "chart")
    METHODS = {
        "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_svg_": "image/svg+xml",
        "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg", "_repr_pdf_": "application/pdf",
        "_repr_latex_": "text/latex", "_repr_json_": "application/json", "_repr_javascript_": "application/javascript",
    }

    def clean(x, depth=0):
        """Returns x as a value that JSON has."""
        if depth > 50:
            return str(x)
        if x is None or isinstance(x, (bool, str)):
            return x
        if isinstance(x, int):
            return int(x)
        if isinstance(x, float):
            x = float(x)
            return x if x - x == 0 else None
        if isinstance(x, dict):
            return {str(k): clean(v, depth + 1) for k, v in x.items()}
        if isinstance(x, (list, tuple)):
            return [clean(v, depth + 1) for v in x]
        item = getattr(x, "item", None)  # a scalar of numpy
        if callable(item) and getattr(x, "shape", None) == ():
            return clean(item(), depth + 1)
        if hasattr(x, "isoformat"):
            return x.isoformat()
        return str(x)

    def real_method(obj, name):
        """Returns a method, unless obj has every name, as proxies and mocks do."""
        if isinstance(obj, type):
            return None
        try:
            if getattr(obj, "_sandbar_no_such_method_", None) is not None:
                return None
            m = getattr(obj, name, None)
        except Exception:
            return None
        return m if callable(m) else None

    def report(what):
        """Prints the traceback of a failed representation; the other ones are used."""
        sys.stderr.write(what + "\n")
        traceback.print_exc(file=sys.stderr)

    def bundle(obj):
        """Returns the representations of a value by their MIME type."""
        out = {}
        whole = real_method(obj, "_repr_mimebundle_")
        if whole:
            try:
                got = whole(include=None, exclude=None)
                got = got[0] if isinstance(got, tuple) else got
                out.update({k: v for k, v in (got or {}).items() if v is not None})
            except Exception:
                report("_repr_mimebundle_ failed:")
        for name, mime in METHODS.items():
            method = None if mime in out else real_method(obj, name)
            if method:
                try:
                    got = method()
                    got = got[0] if isinstance(got, tuple) else got
                    kinds = (str, bytes) if FIELDS[mime] in BINARY else (dict, list) if FIELDS[mime] in OBJECTS else str
                    if isinstance(got, kinds):
                        out[mime] = got
                    elif got is not None:
                        sys.stderr.write("sandbar: %s returned %s and was left out\n" % (name, type(got).__name__))
                except NotImplementedError:
                    pass
                except Exception:
                    report(name + " failed:")
        for extra in (figure_bundle, frame_bundle):
            try:
                for mime, v in extra(obj).items():
                    out.setdefault(mime, v)
            except Exception:
                report("a representation failed:")
        if "text/plain" not in out:
            try:
                out["text/plain"] = pretty(obj)
            except Exception:
                report("repr failed:")
                out["text/plain"] = object.__repr__(obj)
        return out

    def encode(mimes, main):
        """Returns the data of a frame of a result, without the representations that are too large."""
        fields, extra = {}, {}
        for mime, v in mimes.items():
            name = FIELDS.get(mime)
            if isinstance(v, (bytes, bytearray)):
                v = base64.b64encode(v).decode("ascii") if name in BINARY or name is None else bytes(v).decode("utf-8", "replace")
            if name in OBJECTS or name is None and not isinstance(v, str):
                v = clean(v)
            elif not isinstance(v, str):
                v = str(v)
            if name in BINARY:
                v = "".join(v.split())
            if name:
                fields[name] = dumps(v)
            else:
                extra[str(mime)[:200]] = dumps(v)
        while sum(map(len, fields.values())) + sum(map(len, extra.values())) > MAX_DISPLAY - 65536:
            group, name = max(((g, n) for g in (fields, extra) for n in g), key=lambda x: len(x[0][x[1]]))
            size = len(group.pop(name))
            sys.stderr.write("sandbar: the representation %s of a result has %d bytes and was left out; at most %d bytes are allowed\n" % (name, size, MAX_DISPLAY - 65536))
            fields.setdefault("text", dumps("<a result that is too large>"))
        parts = ['"%s":%s' % x for x in fields.items()]
        if extra:
            parts.append('"extra":{%s}' % ",".join(dumps(k) + ":" + v for k, v in list(extra.items())[:32]))
        if main:
            parts.append('"main":true')
        return ("{" + ",".join(parts) + "}").encode("ascii")

    def show(mimes, main=False):
        data = encode(mimes, main)
        flush()
        if os_getpid() == pid:
            send(b"r", data)
        else:
            sys.stdout.write(str(mimes.get("text/plain", "")) + "\n")

    def display(*objs, raw=False, **options):
        """Shows values in all their formats, beside the result of the cell."""
        for obj in objs:
            show(dict(obj) if raw else bundle(obj))

    # ---- matplotlib and pandas

    def figure_bundle(obj):
        figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
        if figure is None or not isinstance(obj, figure) or not (obj.axes or obj.lines):
            return {}
        import io
        out = {}
        for name, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
            if name in formats:
                b = io.BytesIO()
                obj.savefig(b, format=name, bbox_inches="tight")
                out[mime] = b.getvalue()
        chart = chart_of(obj)
        if chart:
            out["application/vnd.sandbar.chart"] = chart
        return out

    formats = os.environ.get("SANDBAR_FIGURES", "png").replace(",", " ").split()

    def show_figures(*args, **options):
        """Shows the open figures of pyplot and closes them."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        plt = sys.modules.get("matplotlib.pyplot")
        if helpers is None or plt is None:
            return
        try:
            for manager in helpers.Gcf.get_all_fig_managers():
                if manager.canvas.figure not in shown:
                    show(bundle(manager.canvas.figure))
        finally:
            plt.close("all")

    shown = []  # the figures that the cell's result shows

    def frame_bundle(obj):
        frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
        if frame is None or not isinstance(obj, frame):
            return {}
        return {"application/vnd.sandbar.data": {str(c): [clean(v) for v in obj[c].tolist()] for c in obj.columns}} if obj.size <= 100000 and obj.columns.is_unique else {}

    def number(x):
        x = clean(x)
        return x if isinstance(x, (int, float, str)) or x is None else str(x)

    def unit(label):
        m = re.search(r"\(([^()]*)\)\s*$", label or "")
        return m.group(1) if m else None

    def points(xs, ys, ax):
        import matplotlib.dates as dates
        is_date = lambda axis: isinstance(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter, (dates.DateConverter, dates._SwitchableDateConverter))
        date = [is_date(ax.xaxis), is_date(ax.yaxis)]
        freq = getattr(ax, "freq", None)  # of the axes of a series of pandas, whose values are ordinals

        def conv(v, is_date):
            if not is_date:
                return number(v)
            if freq is not None and not hasattr(v, "to_timestamp"):
                v = sys.modules["pandas"].Period(ordinal=int(v), freq=freq)
            if hasattr(v, "to_timestamp"):
                v = v.to_timestamp()
            return v.isoformat() if hasattr(v, "isoformat") else dates.num2date(v if isinstance(v, float) else dates.date2num(v)).isoformat()
        return [[conv(x, date[0]), conv(y, date[1])] for x, y in zip(xs, ys)]

    def chart_axes(ax):
        """Returns the data of one pair of axes, as E2B's code interpreter does."""
        from matplotlib.patches import Rectangle, Wedge
        from matplotlib.collections import PathCollection
        chart = {"type": "unknown", "title": ax.get_title() or None, "elements": []}
        wedges = [p for p in ax.patches if isinstance(p, Wedge)]
        if wedges:
            label = lambda w: "" if str(w.get_label()).startswith("_") else str(w.get_label())
            chart.update(type="pie", elements=[{"label": label(w), "angle": number(abs(w.theta2 - w.theta1)), "radius": number(w.r)} for w in wedges])
            return chart
        x_label, y_label = ax.get_xlabel() or None, ax.get_ylabel() or None
        chart.update(x_label=x_label, y_label=y_label, x_unit=unit(x_label), y_unit=unit(y_label))
        box = boxes(ax)
        if box:
            chart.update(type="box_and_whisker", elements=box)
            return chart
        bars = bar_groups(ax)
        if bars:
            chart.update(type="bar", elements=bars)
            return chart
        scatters = [c for c in ax.collections if isinstance(c, PathCollection)]
        lines = [x for x in ax.get_lines() if len(x.get_xdata(orig=True))]
        if not scatters and not lines:
            return chart
        for name, axis, scale in (("x", ax.xaxis, ax.get_xscale()), ("y", ax.yaxis, ax.get_yscale())):
            chart[name + "_ticks"] = [number(t) for t in axis.get_ticklocs()]
            chart[name + "_tick_labels"] = [t.get_text() for t in axis.get_ticklabels()]
            chart[name + "_scale"] = scale
        if scatters:
            chart.update(type="scatter", elements=[{"label": str(c.get_label()), "points": points(c.get_offsets()[:, 0], c.get_offsets()[:, 1], ax)} for c in scatters])
        else:
            chart.update(type="line", elements=[{"label": str(x.get_label()), "points": points(x.get_xdata(orig=True), x.get_ydata(orig=True), ax)} for x in lines])
        return chart

    def boxes(ax):
        """Returns the boxes of boxplot(): 5 points of a box, 2 whiskers, caps and a median each."""
        lines = ax.get_lines()
        closed = [x for x in lines if len(x.get_xdata()) == 5 and x.get_ydata()[0] == x.get_ydata()[4] and x.get_xdata()[0] == x.get_xdata()[4]]
        if not closed or len(lines) < 6 * len(closed):
            return None
        out = []
        for i, b in enumerate(closed):
            xs, ys = [number(v) for v in b.get_xdata()], [number(v) for v in b.get_ydata()]
            middle, low, high = (min(xs) + max(xs)) / 2, min(ys), max(ys)
            near = lambda v: abs(float(v) - middle) < 1e-9
            whisk, outliers, median = [], [], None
            for x in lines:
                lx, ly = list(x.get_xdata()), list(x.get_ydata())
                if x is b or not lx:
                    continue
                if len(lx) == 2 and near(lx[0]) and near(lx[1]) and x.get_linestyle() != "None":
                    whisk += [float(ly[0]), float(ly[1])]
                elif x.get_linestyle() == "None" and all(near(v) for v in lx):
                    outliers += [number(v) for v in ly]
                elif len(lx) == 2 and near((lx[0] + lx[1]) / 2) and ly[0] == ly[1] and low <= ly[0] <= high and abs((lx[1] - lx[0]) - (max(xs) - min(xs))) < 1e-9:
                    median = number(ly[0])
            labels = [t.get_text() for t in ax.get_xticklabels()]
            out.append({"label": labels[i] if i < len(labels) else "", "min": min(whisk, default=low), "first_quartile": low, "median": median,
                "third_quartile": high, "max": max(whisk, default=high), "outliers": outliers})
        return out

    def bar_groups(ax):
        from matplotlib.container import BarContainer
        out = []
        for c in ax.containers:
            if not isinstance(c, BarContainer):
                continue
            upright = getattr(c, "orientation", "vertical") != "horizontal"
            axis = ax.xaxis if upright else ax.yaxis
            names = {round(float(loc), 9): t.get_text() for loc, t in zip(axis.get_ticklocs(), axis.get_ticklabels())}
            for p in c.patches:
                middle = p.get_x() + p.get_width() / 2 if upright else p.get_y() + p.get_height() / 2
                value = p.get_height() if upright else p.get_width()
                label = names.get(round(float(middle), 9)) or "%g" % middle
                out.append({"label": label, "group": str(c.get_label()), "value": number(value)})
        return out

    def chart_of(figure):
        try:
            charts = [chart_axes(ax) for ax in figure.axes if ax.get_visible()]
        except Exception:
            return None  # the data of a chart is an extra beside its image
        if not charts:
            return None
        if len(charts) == 1:
            return charts[0]
        return {"type": "superchart", "title": figure.get_suptitle() or None if hasattr(figure, "get_suptitle") else None, "elements": charts}

    # Modules that are changed after their import.
    def patch_pyplot(m):
        m.show = show_figures

    def patch_ipython(m):
        m.display = display

    class Hook:
        patches = {"matplotlib.pyplot": patch_pyplot, "IPython.core.display_functions": patch_ipython}

        def find_spec(self, name, path=None, target=None):
            patch = self.patches.pop(name, None)
            if patch is None:
                return None
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    run = spec.loader.exec_module

                    def exec_module(module):
                        run(module)
                        patch(module)
                    spec.loader.exec_module = exec_module
                    return spec
            return None

    sys.meta_path.insert(0, Hook())
    os.environ.setdefault("MPLBACKEND", "Agg")

    # ---- cells

    class In(list):
        pass

    module = types.ModuleType("__main__")
    ns = module.__dict__
    ns.update(__builtins__=builtins, In=[""], Out={}, _="", __="", ___="", display=display)
    inputs, outputs = ns["In"], ns["Out"]
    sys.modules["__main__"] = module

    def no_input(prompt=""):
        raise StdinNotImplementedError("input() is not available: a cell has no standard input")
    builtins.input = no_input

    class Cell:
        number = 0
        quiet = False
        loop = None
        task = None

    def displayhook(value):
        if value is None or Cell.quiet:
            return
        n = Cell.number
        ns["___"], ns["__"], ns["_"] = ns.get("__"), ns.get("_"), value
        ns["_%d" % n] = outputs[n] = value
        figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
        if figure is not None and isinstance(value, figure):
            shown.append(value)
        show(bundle(value), main=True)

    def forget(n):
        """Drops what is kept of an old cell."""
        if n > 0:
            outputs.pop(n, None)
            ns.pop("_%d" % n, None)
            linecache.cache.pop("<cell %d>" % n, None)
            if n < len(inputs):
                inputs[n] = ""

    FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def shell(command, capture=False):
        """Runs !command."""
        import subprocess
        flush()
        command = re.sub(r"\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", lambda m: str(ns[m.group(1) or m.group(2)]) if (m.group(1) or m.group(2)) in ns else m.group(0), command)
        if not capture:
            ns["_exit_code"] = subprocess.call(command, shell=True)
            return None
        r = subprocess.run(command, shell=True, stdout=subprocess.PIPE)
        ns["_exit_code"] = r.returncode
        return r.stdout.decode("utf-8", "replace").splitlines()

    def magic(line):
        """Runs %line."""
        name, _, rest = line.partition(" ")
        if name == "pip":
            import subprocess
            flush()
            code = subprocess.call([sys.executable, "-m", "pip"] + __import__("shlex").split(rest))
            __import__("importlib").invalidate_caches()
            if code:
                raise UsageError("pip exited with %d" % code)
        elif name == "matplotlib" and rest.strip() in ("", "inline", "agg"):
            pass
        else:
            raise UsageError("the magic command %%%s does not exist here; there are !COMMAND, %%pip and %%matplotlib inline" % name)

    hidden = {"__sandbar_shell__": shell, "__sandbar_magic__": magic}
    SHELL = re.compile(r"^(\s*)(?:([A-Za-z_]\w*)\s*=\s*)?!(.+)$")
    MAGIC = re.compile(r"^(\s*)%([A-Za-z].*)$")

    def commands(code):
        """Replaces lines with ! and % by calls."""
        out = []
        for line in code.split("\n"):
            m = SHELL.match(line)
            if m and m.group(2):
                line = "%s%s = __sandbar_shell__(%r, True)" % m.groups()
            elif m:
                line = "%s__sandbar_shell__(%r)" % (m.group(1), m.group(3))
            else:
                m = MAGIC.match(line)
                if m:
                    line = "%s__sandbar_magic__(%r)" % m.groups()
            out.append(line)
        return "\n".join(out)

    def parse(code, name, strict):
        if strict:  # the code that was vetted is the code that runs
            return ast.parse(code, name)
        head = code.lstrip().split("\n", 1)[0]
        if head.startswith("%%"):
            raise UsageError("the magic command %s does not exist here; there are !COMMAND, %%pip and %%matplotlib inline" % (head.split() or [head])[0])
        parts = lambda text: compile(text, name, "exec", ast.PyCF_ONLY_AST | FLAGS)
        try:
            return parts(code)
        except SyntaxError:
            plain = commands(code)
            if plain == code:
                raise
            try:
                tree = parts(plain)
            except SyntaxError:
                pass
            else:
                ns.update(hidden)
                return tree
            raise

    def make_task(compiled):
        import asyncio
        if Cell.loop is None or Cell.loop.is_closed():
            Cell.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(Cell.loop)
        Cell.task = Cell.loop.create_task(eval(compiled, ns))

    def evaluate(compiled):
        if not compiled.co_flags & 0x80:  # CO_COROUTINE: there is an await at the top level
            eval(compiled, ns)
            return
        try:
            # An interrupt in between would leave half a loop, or a coroutine without a task, about
            # which Python prints a warning.
            guarded(make_task, compiled)
            Cell.loop.run_until_complete(Cell.task)
            raise_pending()  # the loop may have ended before it raised it
        except BaseException:
            if Cell.task and not Cell.task.done():
                Cell.task.cancel()
                try:
                    Cell.loop.run_until_complete(Cell.task)
                except BaseException:
                    pass
            raise
        finally:
            Cell.task = None

    def execute(code, strict):
        name = "<cell %d>" % Cell.number
        lines = code.splitlines(True)
        linecache.cache[name] = (len(code), None, lines, name)
        tree = parse(code, name, strict)
        flags = 0 if strict else FLAGS
        body = tree.body
        last = None
        if body and isinstance(body[-1], ast.Expr):
            last = body.pop()
        Cell.quiet = code.rstrip().endswith(";")
        if body:
            evaluate(compile(tree, name, "exec", flags))
        if last is not None:
            evaluate(compile(ast.Interactive([last]), name, "single", flags))

    own = sys._getframe().f_code.co_filename

    def failure(e):
        """Returns the data of a frame of an error."""
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename == own:
            tb = tb.tb_next
        try:
            text = "".join(traceback.format_exception(type(e), e, tb))
        except Exception:
            text = "%s: (its traceback cannot be shown)\n" % type(e).__name__
        try:
            value = str(e)
        except Exception:
            value = "(its text cannot be shown)"
        if len(text) > MAX_ERROR:
            text = text[:MAX_ERROR // 2] + "\n…\n" + text[-MAX_ERROR // 4:]
        return dumps({"name": type(e).__name__, "value": value[:MAX_ERROR // 4], "traceback": text[:MAX_ERROR]}).encode("ascii")

    def run_cell(request):
        Cell.number, Cell.quiet = request["count"], False
        del shown[:]
        code, env = request["code"], request.get("env") or {}
        forget(Cell.number - KEEP)
        inputs.append(code)
        before = {k: os.environ.get(k) for k in env}
        os.environ.update(env)
        signal.signal(signal.SIGINT, on_sigint)
        sys.displayhook = displayhook
        error = None
        wake_on_signals()
        with lock:
            read_wakes()
            State.asked, State.handled = None, False
        State.pending, State.running = False, True
        os_write(wake_w, b".")
        try:
            try:
                execute(code, request.get("strict", False))
            finally:
                show_figures()
        except BaseException as e:
            State.running = False
            error = e
        State.running = False
        if os_getpid() != pid:  # a fork has reached the end of the cell
            flush_streams()
            os._exit(0 if error is None else 1)
        for k, v in before.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v
        flush()
        if error is not None:
            send(b"f", failure(error))
            error = None

    def serve():
        for f in forward, flush_for_forward:
            threading.Thread(target=f, daemon=True, name="sandbar-output").start()
        os.register_at_fork(after_in_child=stop_waking)
        signal.signal(signal.SIGINT, on_sigint)
        send(b"k", b"")
        while True:
            head = read_exactly(5)
            request = loads(read_exactly(struct.unpack(">I", head[1:])[0]))
            try:
                run_cell(request)
            except KeyboardInterrupt as e:  # it came just before the cell began, or just after its end
                State.running = False
                send(b"f", failure(e))
            send(b"d", b"")

    # ---- text of values, in the layout of IPython.lib.pretty

    class Printer:
        """Oppen's algorithm: breaks the outermost groups of a line that is too long."""

        def __init__(self, width=79, most=1000):
            self.max_width, self.most = width, most
            self.out, self.output_width, self.buffer, self.buffer_width = [], 0, [], 0
            self.indentation = 0
            root = self.Group(0)
            self.groups, self.queue = [root], [[root]]
            self.stack = []

        class Group:
            def __init__(self, depth):
                self.depth, self.breakables, self.want_break = depth, [], False

        class Text(list):
            width = 0

        class Breakable:
            def __init__(self, seq, width, p):
                self.seq, self.width, self.p, self.indentation, self.group = seq, width, p, p.indentation, p.groups[-1]
                self.group.breakables.append(self)

            def output(self, out, width):
                self.group.breakables.pop(0)
                if self.group.want_break:
                    out.append("\n" + " " * self.indentation)
                    return self.indentation
                if not self.group.breakables:
                    self.p.dequeue(self.group)
                out.append(self.seq)
                return width + self.width

        def enqueue(self, group):
            while group.depth > len(self.queue) - 1:
                self.queue.append([])
            self.queue[group.depth].append(group)

        def dequeue(self, group):
            if group in self.queue[group.depth]:
                self.queue[group.depth].remove(group)

        def take(self):
            for stack in self.queue:
                for i, group in enumerate(reversed(stack)):
                    if group.breakables:
                        del stack[len(stack) - 1 - i]
                        group.want_break = True
                        return group
                for group in stack:
                    group.want_break = True
                del stack[:]

        def emit(self, x):
            if isinstance(x, self.Text):
                self.out.extend(x)
                return self.output_width + x.width
            return x.output(self.out, self.output_width)

        def break_outer(self):
            while self.max_width < self.output_width + self.buffer_width:
                group = self.take()
                if not group:
                    return
                self.break_group(group)

        def break_group(self, group):
            while group.breakables:
                x = self.buffer.pop(0)
                self.output_width = self.emit(x)
                self.buffer_width -= x.width
            while self.buffer and isinstance(self.buffer[0], self.Text):
                x = self.buffer.pop(0)
                self.output_width = self.emit(x)
                self.buffer_width -= x.width

        def text(self, s):
            if self.buffer:
                t = self.buffer[-1]
                if not isinstance(t, self.Text):
                    t = self.Text()
                    self.buffer.append(t)
                t.append(s)
                t.width += len(s)
                self.buffer_width += len(s)
                self.break_outer()
            else:
                self.out.append(s)
                self.output_width += len(s)

        def breakable(self, sep=" "):
            if self.groups[-1].want_break:
                self.flush()
                self.out.append("\n" + " " * self.indentation)
                self.output_width, self.buffer_width = self.indentation, 0
            else:
                self.buffer.append(self.Breakable(sep, len(sep), self))
                self.buffer_width += len(sep)
                self.break_outer()

        def break_(self):
            group = self.take()
            if group:
                self.break_group(group)
            self.flush()
            self.out.append("\n" + " " * self.indentation)
            self.output_width, self.buffer_width = self.indentation, 0

        def begin_group(self, indent=0, open=""):
            if open:
                self.text(open)
            group = self.Group(self.groups[-1].depth + 1)
            self.groups.append(group)
            self.enqueue(group)
            self.indentation += indent

        def end_group(self, dedent=0, close=""):
            self.indentation -= dedent
            group = self.groups.pop()
            if not group.breakables:
                self.dequeue(group)
            if close:
                self.text(close)

        class GroupContext:
            def __init__(self, p, indent, open, close):
                self.p, self.indent, self.open, self.close = p, indent, open, close

            def __enter__(self):
                self.p.begin_group(self.indent, self.open)

            def __exit__(self, kind, *_):
                if kind is not KeyboardInterrupt:  # which may have left half a group
                    self.p.end_group(self.indent, self.close)

        def group(self, indent=0, open="", close=""):
            return self.GroupContext(self, indent, open, close)

        def indent(self, indent):
            p = self

            class Context:
                def __enter__(self):
                    p.indentation += indent

                def __exit__(self, *_):
                    p.indentation -= indent
            return Context()

        def flush(self):
            for x in self.buffer:
                self.output_width = self.emit(x)
            del self.buffer[:]
            self.buffer_width = 0

        def pretty(self, obj):
            cycle = id(obj) in self.stack
            self.stack.append(id(obj))
            try:
                with self.group():
                    self.dispatch(obj, cycle)
            finally:
                self.stack.pop()

        def dispatch(self, obj, cycle):
            for cls in type(obj).__mro__:
                f = printers.get(cls)
                if f:
                    return f(self, obj, cycle)
                f = deferred.get((cls.__module__, cls.__name__))
                if f:
                    return f(self, obj, cycle)
                if callable(cls.__dict__.get("_repr_pretty_")):
                    return cls._repr_pretty_(obj, self, cycle)
                if cls is not object and callable(cls.__dict__.get("__repr__")):
                    return plain(self, obj, cycle)
            if cycle:
                return self.text("<...>")
            self.begin_group(1, "<")
            self.pretty(type(obj))
            self.text(" at 0x%x" % id(obj))
            self.end_group(1, ">")

        def items(self, seq):
            for i, x in enumerate(seq):
                if i >= self.most:
                    self.text(",")
                    self.breakable()
                    self.text("...")
                    return
                yield i, x

    def plain(p, obj, cycle):
        with p.group():
            for i, line in enumerate(repr(obj).splitlines()):
                if i:
                    p.break_()
                p.text(line)

    def sequence(start, end, base):
        def f(p, obj, cycle):
            typ = type(obj)
            if typ is not base and typ.__repr__ != base.__repr__:
                return p.text(typ.__repr__(obj))
            if cycle:
                return p.text(start + "..." + end)
            p.begin_group(len(start), start)
            for i, x in p.items(obj):
                if i:
                    p.text(",")
                    p.breakable()
                p.pretty(x)
            if len(obj) == 1 and base is tuple:
                p.text(",")
            p.end_group(len(start), end)
        return f

    def sets(start, end, base):
        def f(p, obj, cycle):
            typ = type(obj)
            if typ is not base and typ.__repr__ != base.__repr__:
                return p.text(typ.__repr__(obj))
            if cycle:
                return p.text(start + "..." + end)
            if not obj:
                return p.text(base.__name__ + "()")
            p.begin_group(len(start), start)
            items = obj
            if len(obj) <= p.most:
                try:
                    items = sorted(obj)
                except Exception:
                    pass
            for i, x in p.items(items):
                if i:
                    p.text(",")
                    p.breakable()
                p.pretty(x)
            p.end_group(len(start), end)
        return f

    def mapping(p, obj, cycle):
        typ = type(obj)
        if typ is not dict and typ.__repr__ != dict.__repr__:
            return p.text(typ.__repr__(obj))
        if cycle:
            return p.text("{...}")
        p.begin_group(1, "{")
        for i, k in p.items(obj.keys()):
            if i:
                p.text(",")
                p.breakable()
            p.pretty(k)
            p.text(": ")
            p.pretty(obj[k])
        p.end_group(1, "}")

    def call(p, name, args, named=()):
        p.begin_group(len(name) + 1, name + "(")
        first = True
        for key, x in [(None, a) for a in args] + list(named):
            if not first:
                p.text(",")
                p.breakable()
            first = False
            if key is None:
                p.pretty(x)
            else:
                with p.group(len(key) + 1, key + "="):
                    p.pretty(x)
        p.end_group(len(name) + 1, ")")

    def qualified(obj):
        name, mod = getattr(obj, "__qualname__", None) or obj.__name__, getattr(obj, "__module__", None)
        return name if mod in (None, "builtins", "exceptions") else "%s.%s" % (mod, name)

    def classes(p, obj, cycle):
        if [m for m in type(obj).__mro__ if "__repr__" in vars(m)][:1] != [type]:
            return plain(p, obj, cycle)
        p.text(qualified(obj))

    def functions(p, obj, cycle):
        import inspect
        name = qualified(obj)
        try:
            name += str(inspect.signature(obj))
        except Exception:
            pass
        p.text("<function %s>" % name)

    def exceptions(p, obj, cycle):
        name = qualified(type(obj))
        p.begin_group(len(name) + 1, name + "(")
        for i, x in enumerate(getattr(obj, "args", ())):
            if i:
                p.text(",")
                p.breakable()
            p.pretty(x)
        p.end_group(len(name) + 1, ")")

    def cyclic(f):
        def g(p, obj, cycle):
            if cycle:
                return p.text(type(obj).__name__ + "(...)")
            f(p, obj)
        return g

    printers = {
        int: plain, str: plain, float: plain, bytes: plain, bool: plain, type(None): plain,
        tuple: sequence("(", ")", tuple), list: sequence("[", "]", list), dict: mapping,
        set: sets("{", "}", set), frozenset: sets("frozenset({", "})", frozenset),
        type: classes, types.FunctionType: functions, types.BuiltinFunctionType: functions, types.MethodType: plain,
        BaseException: exceptions, types.SimpleNamespace: cyclic(lambda p, o: call(p, "namespace" if type(o) is types.SimpleNamespace else type(o).__name__, [], list(o.__dict__.items()))),
    }
    name_of = lambda o: type(o).__name__
    deferred = {
        ("collections", "defaultdict"): cyclic(lambda p, o: call(p, name_of(o), [o.default_factory, dict(o)])),
        ("collections", "OrderedDict"): cyclic(lambda p, o: call(p, name_of(o), [list(o.items())] if o else [])),
        ("collections", "deque"): cyclic(lambda p, o: call(p, name_of(o), [list(o)], [("maxlen", o.maxlen)] if o.maxlen is not None else [])),
        ("collections", "Counter"): cyclic(lambda p, o: call(p, name_of(o), [dict(o.most_common())] if o else [])),
    }

    def pretty(obj):
        p = Printer()
        p.pretty(obj)
        p.flush()
        return "".join(p.out)

    serve()


_main()
