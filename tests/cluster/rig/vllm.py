"""Real vLLM processes behind pods: a process begins when its pod's container does, listens on the pod's own address, and its
readiness is what its pod's readiness says. And clients that load them."""

import http.client
import json
import os
import random
import subprocess
import threading
import time

SLOTS = 4  # --max-num-seqs of each server
PORT = 8000


class Engines:
    """Follows the pods of one namespace."""

    def __init__(self, programs, api, namespace, folder):
        self.programs, self.api, self.namespace = programs, api, namespace
        self.venv = os.environ["RIG_VLLM"]
        self.model = os.path.join(folder, "model")
        tiny = os.path.join(os.environ["RIG_ROOT"], "tests", "vllm", "model.py")
        subprocess.run([f"{self.venv}/bin/python", tiny, self.model], check=True)
        self.processes, self.started, self.ready_after, self.ended = {}, {}, {}, False
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.ended:
            try:
                self.turn()
            except Exception as error:
                print(f"  engines: {error}", flush=True)
            time.sleep(0.5)

    def turn(self):
        pods = {pod["metadata"]["name"]: pod for pod in self.api.list("Pod", self.namespace, "engine=real")}
        for name, pod in pods.items():
            if pod["metadata"].get("deletionTimestamp"):
                # vLLM ends by itself on SIGTERM; what it still works on is cut off after its own time.
                if name in self.processes and self.processes[name].alive():
                    self.processes[name].process.terminate()
                continue
            address = pod.get("status", {}).get("podIP")
            if address and name not in self.processes:
                self.begin(name, address)
            if name in self.processes and name not in self.ready_after and healthy(address):
                self.ready_after[name] = time.monotonic() - self.started[name]
                self.patch_ready(pod)
        for name in [name for name in self.processes if name not in pods]:
            self.processes.pop(name).kill()

    def begin(self, name, address):
        # Each computes on a core of its own: left to themselves all choose the first one, where one under load can keep
        # the next from starting for minutes.
        cores = sorted(os.sched_getaffinity(0))
        core = cores[len(self.started) % len(cores)]
        self.started[name] = time.monotonic()
        self.processes[name] = self.programs.start(f"vllm-{name}", [
            f"{self.venv}/bin/vllm", "serve", self.model, "--served-model-name", "tiny", "--host", address, "--port", PORT,
            "--load-format", "dummy", "--enforce-eager", "--dtype", "float32", "--max-model-len", "1024",
            "--max-num-seqs", SLOTS, "--block-size", "32", "--num-gpu-blocks-override", "48", "--no-enable-prefix-caching",
        ], {
            "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
            "TOKENIZERS_PARALLELISM": "false", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": address,
            "VLLM_CPU_OMP_THREADS_BIND": str(core),
        })

    def patch_ready(self, pod):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Ready", "ContainersReady")]
        containers = [{**status, "ready": True, "started": True} for status in pod["status"]["containerStatuses"]]
        path = self.api.path("Pod", self.namespace, pod["metadata"]["name"], "status")
        body = {"status": {"conditions": conditions, "containerStatuses": containers}}
        self.api.request("PATCH", path, body, "application/strategic-merge-patch+json")

    def stop(self):
        self.ended = True
        self.thread.join()
        for process in self.processes.values():
            process.stop()


def healthy(address):
    try:
        connection = http.client.HTTPConnection(address, PORT, timeout=1)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


class Clients:
    """So many clients, each with one request at a time, to the ready pod that has the fewest."""

    def __init__(self, api, namespace):
        self.api, self.namespace = api, namespace
        self.lock, self.busy, self.addresses = threading.Lock(), {}, []
        self.done = self.lost = 0
        self.wanted, self.threads, self.random = 0, [], random.Random(7)

    def look(self):
        """Which pods are ready."""
        pods = self.api.list("Pod", self.namespace, "engine=real")
        ready = lambda pod: any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", []))
        self.addresses = [p["status"]["podIP"] for p in pods if ready(p) and not p["metadata"].get("deletionTimestamp")]
        return self.addresses

    def set(self, count):
        self.wanted = count
        while len(self.threads) < count:
            thread = threading.Thread(target=self.client, args=(len(self.threads),), daemon=True)
            self.threads.append(thread)
            thread.start()

    def client(self, number):
        while True:
            if number >= self.wanted or not self.addresses:
                time.sleep(0.2)
                continue
            with self.lock:
                address = min(self.addresses, key=lambda a: self.busy.get(a, 0))
                self.busy[address] = self.busy.get(address, 0) + 1
                prompt = [self.random.randrange(10, 300) for _ in range(self.random.randrange(50, 300))]
                tokens = self.random.randrange(60, 200)
            try:
                connection = http.client.HTTPConnection(address, PORT, timeout=300)
                body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 1.0}
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                served = connection.getresponse()
                served.read()
                with self.lock:
                    self.done += served.status == 200
                    self.lost += served.status != 200
            except (OSError, http.client.HTTPException):
                with self.lock:
                    self.lost += 1
                time.sleep(0.2)
            finally:
                with self.lock:
                    self.busy[address] -= 1
