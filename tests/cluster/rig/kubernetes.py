"""A client for the API server with the administrator's certificate. Standard library only."""

import http.client
import json
import os
import ssl
import subprocess
import threading

RESOURCES = {
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "Event": ("v1", "events"),
    "ResourceQuota": ("v1", "resourcequotas"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "APIService": ("apiregistration.k8s.io/v1", "apiservices"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
}
CLUSTER_WIDE = {"Namespace", "Node", "APIService"}


class ApiError(Exception):
    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    def __init__(self, pki, kubectl):
        self.context = ssl.create_default_context(cafile=os.path.join(pki, "ca.crt"))
        self.context.load_cert_chain(os.path.join(pki, "admin.crt"), os.path.join(pki, "admin.key"))
        self.kubeconfig = os.path.join(pki, "admin.kubeconfig")
        self.kubectl_program = kubectl
        self.local = threading.local()

    def request(self, method, path, body=None, content_type="application/json"):
        """One call; connections are kept, one a thread. Raises ApiError, or OSError when the server can't be had."""
        data = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection("127.0.0.1", 6443, context=self.context, timeout=20)
                self.local.connection = connection
            try:
                connection.request(method, path, data, {"Content-Type": content_type, "Accept": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                # A kept connection may have been closed meanwhile; a fresh one tells whether the server is there.
                connection.close()
                self.local.connection = None
                if attempt == 2:
                    raise
        if answer.status >= 400:
            raise ApiError(answer.status, text.decode(errors="replace")[:500])
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def path(self, kind, namespace=None, name=None, sub=None):
        version, plural = RESOURCES[kind]
        path = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        if namespace and kind not in CLUSTER_WIDE:
            path += f"/namespaces/{namespace}"
        return "/".join(part for part in (path, plural, name, sub) if part)

    def get(self, kind, namespace, name, sub=None):
        return self.request("GET", self.path(kind, namespace, name, sub))

    def find(self, kind, namespace, name):
        """The object, or None where there is none."""
        try:
            return self.get(kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind, namespace=None, selector=None):
        query = f"?labelSelector={selector.replace('=', '%3D').replace(',', '%2C')}" if selector else ""
        return self.request("GET", self.path(kind, namespace) + query)["items"]

    def apply(self, *objects):
        """Server-side apply, as `kubectl apply --server-side` does it."""
        for thing in objects:
            version, _ = RESOURCES[thing["kind"]]
            thing = {"apiVersion": version, **thing}
            path = self.path(thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"])
            self.request("PATCH", path + "?fieldManager=rig&force=true", thing, "application/apply-patch+yaml")

    def patch(self, kind, namespace, name, body, sub=None):
        return self.request("PATCH", self.path(kind, namespace, name, sub), body, "application/merge-patch+json")

    def delete(self, kind, namespace, name, grace=None):
        body = None if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.request("DELETE", self.path(kind, namespace, name), body)
        except ApiError as error:
            if error.status != 404:
                raise

    def ready(self):
        try:
            return self.request("GET", "/readyz") == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def kubectl(self, *arguments, text=None):
        """For files of YAML."""
        done = subprocess.run(
            [self.kubectl_program, "--kubeconfig", self.kubeconfig, *arguments],
            input=text, capture_output=True, text=True, timeout=120,
        )
        if done.returncode != 0:
            raise ApiError(done.returncode, done.stderr.strip())
        return done.stdout
