"""The server under test: real processes, one or two a case, each on an address of its own."""

import http.client
import itertools
import json
import os
import re
import signal
import threading

# Addresses of the namespace that no pod gets: KWOK counts up from 10.244.0.1.
ADDRESSES = (f"10.244.{250 + n // 250}.{1 + n % 250}" for n in itertools.count())
LOCK = threading.Lock()


class Scaler:
    """One process. `tiers` and `more` are the configuration as the server's file has it; or `text` is the file."""

    def __init__(self, programs, state, name, namespace, tiers=(), address=None, more=None, text=None):
        with LOCK:
            self.address = address or next(ADDRESSES)
        self.name, self.tiers, self.more, self.text = name, list(tiers), more or {}, text
        self.file = os.path.join(state, f"{name}.yaml")
        self.write()
        self.program = programs.start(f"scaler-{name}", [
            os.environ["RIG_SCALER"], "serve", "--config", self.file, "--log-format", "json",
            # Who it is, as the manifests tell it: for its Lease and its Events.
        ], {"POD_NAME": name, "POD_NAMESPACE": namespace, "POD_IP": self.address})

    @property
    def grpc(self):
        """For `scalerAddress`."""
        return f"{self.address}:6000"

    def write(self):
        """The file in one step, so that nobody reads half of it. JSON is YAML."""
        if self.text is not None:
            with open(self.file, "w") as out:
                out.write(self.text)
            return
        listen = {kind: f"{self.address}:{port}" for kind, port in [("grpc", 6000), ("http", 8080), ("health", 8081)]}
        config = {"listen": listen, **self.more}
        if self.tiers:
            config["tiers"] = self.tiers
        with open(self.file + ".new", "w") as out:
            json.dump(config, out, indent=1)
        os.replace(self.file + ".new", self.file)

    def reload(self):
        """After a change of `tiers`."""
        self.write()
        self.program.signal(signal.SIGHUP)

    def get(self, path):
        connection = http.client.HTTPConnection(self.address, 8080, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ready(self):
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def tier(self, namespace, name):
        """The API's view of a tier; None without a decision yet."""
        try:
            status, text = self.get(f"/v1/tiers/{namespace}/{name}")
        except OSError:
            return None
        return json.loads(text) if status == 200 else None

    def answer(self, namespace, name):
        """Required replicas; None while the answer is an error or there is none."""
        tier = self.tier(namespace, name)
        return (tier or {}).get("decision", {}).get("answer", {}).get("required")

    def metric(self, name, **labels):
        """Sum of the samples of one of its own metrics that have these labels; None where there is none."""
        found = [value for has, value in self.samples(name) if labels.items() <= has.items()]
        return sum(found) if found else None

    def samples(self, name):
        _, text = self.get("/metrics")
        for line in text.splitlines():
            match = re.fullmatch(re.escape(name) + r"(\{(.*)\})? (\S+)", line)
            if match:
                yield dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")), float(match[3])
