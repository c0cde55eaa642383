#!/usr/bin/env python3
"""Builds a wheel of the SDK, with the standard library alone and the same bytes each time.

    build.py VERSION DIRECTORY [ARCH BINARY]

With ARCH (amd64 or arm64) and BINARY the wheel is for Linux on that processor, and has the
command. Otherwise it is for any platform. The module _sync is made of _async.
"""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
TAGS = {"amd64": "py3-none-manylinux2014_x86_64", "arm64": "py3-none-manylinux2014_aarch64", "": "py3-none-any"}
MACHINES = {"amd64": 62, "arm64": 183}

# The differences between the two modules, in this order.
SYNC = [
    (r"\basync (def|for|with)\b", r"\1"), (r"\bawait ", ""), (r"\bAsync(?=[A-Z])", ""), (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclose\b", "close"), (r"\baread\b", "read"), (r"\baiter_bytes\b", "iter_bytes"), (r"_net_async", "_net_sync"),
    (r'"""The SDK for asyncio.*', '"""The SDK for blocking callers. build.py makes it of _async.py."""'),
]

METADATA = """Metadata-Version: 2.1
Name: sandbar
Version: {version}
Summary: Run untrusted code in sandboxes
Requires-Python: >=3.9
Requires-Dist: httpx>=0.25
Provides-Extra: fathom
Requires-Dist: websockets>=15; extra == "fathom"
"""


def sync(text: str) -> str:
    for pattern, to in SYNC:
        text = re.sub(pattern, to, text)
    return text


def pep440(version: str) -> str:
    """Turn "v1.2.3-4-gabc" into "1.2.3+4.gabc"."""
    number, _, rest = version.lstrip("v").partition("-")
    if not re.fullmatch(r"\d+(\.\d+)+", number):
        number, rest = "0.0.0", version
    rest = re.sub(r"[^A-Za-z0-9]+", ".", rest).strip(".")
    return number + ("+" + rest if rest else "")


def main(version: str, to: str, arch: str = "", binary: str = "") -> None:
    version, tag = pep440(version), TAGS[arch]
    files = {"sandbar/" + p.name: p.read_bytes() for p in sorted((HERE / "sandbar").glob("*.py"))}
    files["sandbar/py.typed"] = b""
    files["sandbar/_sync.py"] = sync(files["sandbar/_async.py"].decode()).encode()
    if binary:
        command = files["sandbar/bin/sandbar"] = Path(binary).read_bytes()
        machine = int.from_bytes(command[18:20], "little")  # e_machine, elf(5)
        if command[:4] != b"\x7fELF" or machine != MACHINES[arch]:
            sys.exit(f"build.py: {binary} is no command for Linux on {arch}: its ELF machine is {machine}, not {MACHINES[arch]}")
    info = f"sandbar-{version}.dist-info/"
    files[info + "METADATA"] = METADATA.format(version=version).encode()
    files[info + "WHEEL"] = f"Wheel-Version: 1.0\nGenerator: sandbar\nRoot-Is-Purelib: {'false' if binary else 'true'}\nTag: {tag}\n".encode()
    files[info + "LICENSE"] = (HERE / "../../LICENSE").read_bytes()
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}\n" for n, b in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    out = Path(to) / f"sandbar-{version}-{tag}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.startswith("sandbar/bin/") else 0o100644) << 16
            wheel.writestr(entry, content)
    print(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
