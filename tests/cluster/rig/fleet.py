"""The simulated engines behind the pods, the router before them and the load: one process, controlled over HTTP."""

import http.client
import json
import os
import time

CONTROL = ("127.0.0.1", 9001)
# The router's own page: what an activator reads.
ROUTER_PAGE = "http://127.0.0.1:9000/metrics"
QUEUE_METRIC = "simulated_router_queued_requests"


class Fleet:
    def __init__(self, programs, cluster):
        self.program = programs.start("fleet", [
            os.environ["RIG_FLEET"], "--server", "https://127.0.0.1:6443", "--pki", cluster.pki,
            "--router", "127.0.0.1:9000", "--control", "127.0.0.1:9001", "--pods", "0.0.0.0:8000",
        ])
        deadline = time.monotonic() + 20
        while True:
            try:
                self.call("GET", "/counters")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the fleet doesn't serve:\n{self.program.tail()}")
                time.sleep(0.1)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(*CONTROL, timeout=10)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status >= 400:
                raise RuntimeError(f"fleet: {answer.status} {text}")
            return json.loads(text) if text else None
        finally:
            connection.close()

    def load(self, namespace, tier, rate, input_tokens=600, output_tokens=150):
        """Requests a second from now on."""
        self.call("PUT", "/load", {"namespace": namespace, "tier": tier, "rate": rate, "input": input_tokens, "output": output_tokens})

    def burst(self, namespace, tier, count, input_tokens=600, output_tokens=150):
        """So many requests at this instant."""
        self.call("PUT", "/burst", {"namespace": namespace, "tier": tier, "count": count, "input": input_tokens, "output": output_tokens})

    def silence(self, namespace, tier, silent):
        """Pages of the tier's pods aren't answered while silent; requests are."""
        self.call("PUT", "/silence", {"namespace": namespace, "tier": tier, "silent": silent})

    def counters(self, namespace, tier):
        """sent, done, lost, held, running, waiting, pods, ready, queue seconds p50/p95/max."""
        tiers = self.call("GET", "/counters")
        return next((t for t in tiers if t["namespace"] == namespace and t["tier"] == tier), None)

    @staticmethod
    def activator(namespace, tier):
        return {"url": ROUTER_PAGE, "metric": QUEUE_METRIC, "labels": {"namespace": namespace, "tier": tier}}
