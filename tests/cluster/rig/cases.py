"""What a case is, what it may use, and how its outcome is told."""

import threading
import time
import traceback

from . import objects
from .scaler import Scaler

REGISTRY = {}
# The name in the manifests has two addresses in the namespace's hosts file: one case at a time has them.
_DOCUMENTED = threading.Lock()
DOCUMENTED_ADDRESSES = ("10.244.254.1", "10.244.254.2")
DOCUMENTED_NAME = "keda-vllm-scaler.keda-vllm-scaler.svc:6000"


class Missed(Exception):
    """Something expected didn't come; the case can't go on."""


class Row:
    def __init__(self, case, what, expected, seen, passed, seconds):
        self.case, self.what, self.expected, self.seen = case, what, expected, seen
        self.passed, self.seconds = passed, seconds


def case(name, seconds, ci=False, alone=False, needs=()):
    """Registers a case. `seconds`: about how long it takes (long ones begin first). `alone`: it breaks what others need.
    `needs`: `fleet` (simulated engines), `lws`, `kubernetes`, `vllm`, `tolerance` (a KEDA that knows it)."""

    def register(run):
        REGISTRY[name] = CaseKind(name, run, seconds, ci, alone, frozenset(needs), (run.__doc__ or "").strip())
        return run

    return register


class CaseKind:
    def __init__(self, name, run, seconds, ci, alone, needs, about):
        self.name, self.run, self.seconds, self.ci, self.alone = name, run, seconds, ci, alone
        self.needs, self.about = needs, about


class Case:
    """A running case: a namespace of its own, its scalers, and the rows of the table that it adds."""

    def __init__(self, kind, cluster, programs, fleet, report, left_standing=False, again=False):
        # `left_standing`: its servers and namespaces are left as they are, to look around.
        self.left_standing = left_standing
        self.kind, self.name = kind, kind.name
        # The first run's namespace may still be on its way out.
        self.namespace = f"case-{kind.name}-again" if again else f"case-{kind.name}"
        self.cluster, self.api, self.programs, self.fleet, self.report = cluster, cluster.api, programs, fleet, report
        self.scalers, self.begun, self.rows = [], time.monotonic(), []
        self.namespaces = []
        self.lock = threading.Lock()
        self.has_documented = False

    def make_namespace(self, name=None):
        name = name or self.namespace
        self.api.apply({"kind": "Namespace", "metadata": {"name": name}})
        self.namespaces.append(name)
        return name

    def scaler(self, tiers=(), name=None, **more):
        """Starts a server and waits for its first round."""
        address, text = more.pop("address", None), more.pop("text", None)
        namespace = more.pop("namespace", self.namespace)
        name = name or (self.name if not self.scalers else f"{self.name}-{len(self.scalers) + 1}")
        scaler = Scaler(self.programs, self.cluster.state, name, namespace, tiers, address, more, text)
        self.scalers.append(scaler)
        self.wait(scaler.ready, 30, f"scaler {name} is ready")
        return scaler

    # Looking

    def wait(self, holds, seconds, what, every=0.1):
        """Waits until `holds()` is true and returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = holds()
            if value:
                return value
            if time.monotonic() > deadline:
                raise Missed(f"{what}: not within {seconds} s")
            time.sleep(every)

    def spec_of(self, name, kind="Deployment", namespace=None):
        found = self.api.find(kind, namespace or self.namespace, name)
        return None if found is None else found["spec"].get("replicas", 1)

    def status_of(self, name, kind="Deployment", namespace=None):
        found = self.api.find(kind, namespace or self.namespace, name)
        return (found or {}).get("status", {}).get("replicas", 0)

    def hpa(self, name, namespace=None):
        return self.api.find("HorizontalPodAutoscaler", namespace or self.namespace, f"keda-hpa-{name}")

    def asked(self, name, namespace=None):
        """Has the HPA had our number, or an error, yet? What it says: its condition ScalingActive."""
        conditions = ((self.hpa(name, namespace) or {}).get("status") or {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "ScalingActive"), None)

    def reaches(self, name, expected, seconds, what=None, kind="Deployment", namespace=None):
        """Adds a row: does the target's spec get to a number?"""
        begun, seen = time.monotonic(), None
        while time.monotonic() - begun <= seconds:
            seen = self.spec_of(name, kind, namespace)
            if seen == expected:
                break
            time.sleep(0.1)
        return self.check(what or f"{name} gets to {expected}", expected, seen, since=begun)

    def stays(self, name, expected, seconds, what=None, kind="Deployment", namespace=None):
        """Adds a row: is the target's spec this number all the time?"""
        begun, seen = time.monotonic(), set()
        while time.monotonic() - begun <= seconds:
            seen.add(self.spec_of(name, kind, namespace))
            time.sleep(0.2)
        shown = seen.pop() if len(seen) == 1 else sorted(seen, key=str)
        return self.check(what or f"{name} stays {expected}", expected, shown, since=begun)

    def never_below(self, name, least, seconds, what, kind="Deployment", namespace=None):
        """Adds a row: is the target's spec at least this number all the time?"""
        begun, lowest = time.monotonic(), None
        while time.monotonic() - begun <= seconds:
            seen = self.spec_of(name, kind, namespace)
            lowest = seen if lowest is None else min(lowest, seen)
            time.sleep(0.2)
        return self.check(what, f"at least {least}", lowest, lowest >= least, since=begun)

    # Telling

    def check(self, what, expected, seen, passed=None, since=None):
        """Adds a row: seen against expected, equal unless `passed` says otherwise."""
        passed = seen == expected if passed is None else bool(passed)
        row = Row(self.name, what, expected, seen, passed, time.monotonic() - (since or self.begun))
        with self.lock:
            self.rows.append(row)
        self.report(row)
        return passed

    def execute(self):
        self.begun = time.monotonic()
        try:
            self.make_namespace()
            self.kind.run(self)
            if not self.rows:
                self.check("the case checks something", "a row", "none")
        except Missed as missed:
            self.check(str(missed), "in time", "not")
        except Exception as error:
            self.check(f"{type(error).__name__}: {error}", "no error", traceback.format_exc(limit=-3).replace("\n", " | "), False)
        finally:
            self.clean_up()

    def passed(self):
        return all(row.passed for row in self.rows)

    def take_documented_addresses(self):
        """Waits for them; they are given back when this case's servers are gone."""
        _DOCUMENTED.acquire()
        self.has_documented = True

    def clean_up(self):
        if self.left_standing:
            return
        for scaler in self.scalers:
            scaler.program.stop()
        if self.has_documented:
            _DOCUMENTED.release()
        for namespace in self.namespaces:
            try:
                self.api.delete("Namespace", None, namespace)
            except Exception as error:
                print(f"  namespace {namespace} stays: {error}", flush=True)

    # Making

    def deploy(self, name, namespace=None, **how):
        self.api.apply(objects.deployment(namespace or self.namespace, name, **how))

    def scale_by(self, scaler, name, namespace=None, **how):
        self.api.apply(objects.scaled_object(namespace or self.namespace, name, scaler.grpc, **how))
