# Prints which of the modules in argv[1] the program on standard input imports, as
# JSON.
# The program is parsed and never run. An error of any kind ends this with an
# exit code other than 0, which refuses the program.
import ast, json, sys

blocked = set(sys.argv[1].split(","))
source = sys.stdin.buffer.read()


def runs_otherwise():
    """Whether Python would run a file of this although it is no source text."""
    import importlib.util, io, zipfile
    return source[:2] == importlib.util.MAGIC_NUMBER[:2] or zipfile.is_zipfile(io.BytesIO(source))


try:
    tree = ast.parse(source)
except SyntaxError:
    if runs_otherwise():
        sys.exit(3)
    tree = ast.parse("")


def text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def names(node):
    """The modules that a node of the tree imports by name."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module] if node.module and not node.level else []
    if isinstance(node, ast.Call) and node.args:
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called in ("__import__", "import_module"):
            return [text(node.args[0]) or ""]
    return []


found = []  # of line and module
for node in ast.walk(tree):
    found += [(node.lineno, n.split(".")[0]) for n in names(node) if n.split(".")[0] in blocked]
print(json.dumps(list(dict.fromkeys(module for _, module in sorted(found, key=lambda f: f[0])))))
