# A caller as the protocol has in mind: a subprocess, a line out, a line in.
# usage: caller.py REQUESTS COMMAND...
import base64, json, subprocess, sys

count = int(sys.argv[1])
box = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(request):
    box.stdin.write(json.dumps(request) + "\n")
    box.stdin.flush()
    line = box.stdout.readline()
    assert line.endswith("\n"), f"{request} is answered with {line!r}"
    return json.loads(line)


def shell(i):
    r = ask({"type": "shell", "command": f"echo {i} | sed s/^/n=/; exit {i % 256}", "id": f"s{i}"})
    assert r == {"type": "shell", "id": f"s{i}", "stdout": f"n={i}\n", "stderr": "", "exit_code": i % 256, "timed_out": False}, r


def files(i):
    data = bytes((i + k) % 256 for k in range(i))
    r = ask({"type": "write_file", "path": f"/tmp/f{i % 7}", "content": base64.b64encode(data).decode(), "encoding": "base64", "id": f"w{i}", "mode": "0600"})
    assert r == {"type": "write_file", "id": f"w{i}", "success": True, "error": None}, r
    r = ask({"type": "read_file", "path": f"/tmp/f{i % 7}", "encoding": "base64", "id": f"r{i}"})
    assert base64.b64decode(r["content"]) == data and r["success"], r


def javascript(i):
    r = ask({"type": "shell", "command": f"node -e 'console.log({i}*2, [..\"ab\"].length)'".replace('..', '...'), "id": f"j{i}"})
    assert r["stdout"] == f"{i * 2} 2\n" and r["exit_code"] == 0, r


def python(i):
    r = ask({"type": "shell", "command": f"python3 -c 'import json; print(json.dumps([{i}]))'", "id": f"p{i}", "time_limit_ms": 60000})
    assert r["stdout"] == f"[{i}]\n" and r["exit_code"] == 0, r


def status(i):
    r = ask({"type": "status", "id": f"t{i}"})
    assert r["ready"] and r["memory_limit_bytes"] == 64 << 20 and 0 <= r["memory_used_bytes"] < 64 << 20, r


def missing(i):
    r = ask({"type": "read_file", "path": "/none", "id": f"m{i}"})
    assert r["success"] is False and r["error"], r


def garbage(i):
    box.stdin.write("not json\n")
    box.stdin.flush()
    r = json.loads(box.stdout.readline())
    assert r["type"] == "error" and r["id"] is None, r


def slow(i):
    r = ask({"type": "shell", "command": "echo begun; sleep 60", "id": f"l{i}", "time_limit_ms": 300})
    assert r["timed_out"] and r["exit_code"] is None and r["stdout"] == "begun\n", r


def reset(i):
    assert ask({"type": "reset", "id": f"x{i}"}) == {"type": "reset", "id": f"x{i}", "success": True}
    r = ask({"type": "shell", "command": "ls /tmp", "id": f"y{i}"})
    assert r["stdout"] == "", r


kinds = [shell, files, shell, javascript, status, shell, files, missing, garbage, shell]
for i in range(count):
    if i % 25 == 24:
        python(i)
    elif i % 40 == 39:
        slow(i)
    elif i % 50 == 49:
        reset(i)
    else:
        kinds[i % len(kinds)](i)
box.stdin.close()
rest = box.stdout.read()
assert rest == "", rest
assert box.wait(60) == 0, box.returncode
print("answered", count)
