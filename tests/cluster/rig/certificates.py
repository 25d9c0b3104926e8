"""One authority for everything, a certificate for each part, and kubeconfigs."""

import os
import shutil
import subprocess

SERVER = "https://127.0.0.1:6443"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make(folder):
    """Fills a folder with keys; returns it."""
    os.makedirs(os.path.join(folder, "keda"))
    path = lambda name: os.path.join(folder, name)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", path("ca.key"), "-out", path("ca.crt"), "-days", "30", "-subj", "/CN=rig-ca")
    openssl("genrsa", "-out", path("sa.key"), "2048")
    openssl("rsa", "-in", path("sa.key"), "-pubout", "-out", path("sa.pub"))
    services = (
        "DNS:localhost,DNS:kubernetes.default.svc,DNS:keda-operator.keda.svc,"
        "DNS:keda-metrics-apiserver.keda.svc,IP:127.0.0.1,IP:10.0.0.1"
    )
    for name, subject, names in [
        ("apiserver", "/CN=kube-apiserver", services),
        ("admin", "/O=system:masters/CN=admin", "DNS:admin"),
        ("scheduler", "/CN=system:kube-scheduler", "DNS:scheduler"),
        ("frontproxy", "/CN=front-proxy", "DNS:front-proxy"),
        ("keda-service", "/CN=keda-operator", services),
    ]:
        openssl("req", *curve, "-keyout", path(f"{name}.key"), "-out", path(f"{name}.csr"), "-subj", subject)
        with open(path(f"{name}.ext"), "w") as extensions:
            extensions.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl(
            "x509", "-req", "-in", path(f"{name}.csr"), "-CA", path("ca.crt"), "-CAkey", path("ca.key"),
            "-CAcreateserial", "-out", path(f"{name}.crt"), "-days", "30", "-extfile", path(f"{name}.ext"),
        )
    shutil.copy(path("ca.crt"), path("keda/ca.crt"))
    shutil.copy(path("keda-service.crt"), path("keda/tls.crt"))
    shutil.copy(path("keda-service.key"), path("keda/tls.key"))
    for who in ("admin", "scheduler"):
        user = f"client-certificate: {path(who)}.crt, client-key: {path(who)}.key"
        kubeconfig(path(f"{who}.kubeconfig"), path("ca.crt"), user)
    return folder


def kubeconfig(file, authority, user):
    """Writes a kubeconfig; `user` is what identifies, as YAML in one line."""
    with open(file, "w") as out:
        out.write(
            "apiVersion: v1\nkind: Config\ncurrent-context: rig\n"
            f'clusters: [{{name: rig, cluster: {{server: "{SERVER}", certificate-authority: {authority}}}}}]\n'
            f"users: [{{name: me, user: {{{user}}}}}]\n"
            "contexts: [{name: rig, context: {cluster: rig, user: me}}]\n"
        )
