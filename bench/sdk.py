"""Measures a request of the SDK and the same request without it, in turn, and prints both in ms."""

import os
import time

import httpx
from sandbar import Sandbox

url, token = os.environ["SANDBAR_URL"], os.environ["SANDBAR_TOKEN"]
box = Sandbox.connect(os.environ["SANDBOX"])
raw = httpx.Client(headers={"Authorization": "Bearer " + token})
path = f"{url}/v1/sandboxes/{box.id}/contexts"


def took(f):
    began = time.perf_counter()
    f()
    return (time.perf_counter() - began) * 1e3


pairs = [(took(box.contexts.list), took(lambda: raw.get(path).json())) for _ in range(600)][100:]
print(*(sorted(times)[len(times) // 2] for times in zip(*pairs)))
