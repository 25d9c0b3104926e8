"""A real vLLM server on this machine's CPU, as `prove.py` and `calibrate.py` start it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import aiohttp

BLOCK_TOKENS = 32
START_SECONDS = 400


class Failed(Exception):
    pass


def check(holds, what, **seen):
    detail = ", ".join(f"{name} {value}" for name, value in seen.items())
    print(f"  {'ok  ' if holds else 'FAIL'} {what}{': ' + detail if detail else ''}", flush=True)
    if not holds:
        raise Failed(what)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_model(folder, *size):
    """A random model without weights; its folder. `size`: its hidden size and layers, where they are not the usual."""
    model = os.path.join(folder, "model")
    script = os.path.join(os.path.dirname(__file__), "model.py")
    subprocess.run([sys.executable, script, model, *map(str, size)], check=True)
    return model


class VllmServer:
    """One server. `limits` are flags of `vllm serve`, `environment` what it finds beside the usual."""

    def __init__(self, venv, model, folder, number, limits, environment=None):
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.log = os.path.join(folder, f"vllm-{number}.log")
        environment = dict(
            os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
            TOKENIZERS_PARALLELISM="false", VLLM_CPU_KVCACHE_SPACE="1", VLLM_HOST_IP="127.0.0.1", **(environment or {}),
        )
        command = [
            f"{venv}/bin/vllm", "serve", model, "--served-model-name", "tiny", "--host", "127.0.0.1",
            "--port", str(self.port), "--load-format", "dummy", "--enforce-eager", "--dtype", "float32",
            "--max-model-len", "1024", "--block-size", str(BLOCK_TOKENS), "--no-enable-prefix-caching", *limits,
        ]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    async def healthy(self, session):
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS:
            if self.process.poll() is not None:
                raise Failed(f"vLLM ended at start, see {self.log}")
            try:
                async with session.get(f"{self.base}/health", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                    if answer.status == 200:
                        return time.monotonic() - begun
            except (aiohttp.ClientError, asyncio.TimeoutError):
                pass
            await asyncio.sleep(0.5)
        raise Failed(f"vLLM is not healthy after {START_SECONDS} s, see {self.log}")

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
