#!/usr/bin/python3
"""TLS and mutual TLS with given certificates, for all three programs that speak gRPC."""

import os
import subprocess

import harness


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class Tls(harness.unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster()
        self.addCleanup(self.cluster.close)
        self.data = os.path.join(self.cluster.dir, "tokens.bin")
        harness.write_tokens(self.data)
        self.ca = self.path("ca.pem")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca", "-keyout",
                self.path("ca.key"), "-out", self.ca)
        for name in ("server", "client"):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"), "-out",
                    self.path(f"{name}.csr"))
            with open(self.path("ext"), "w") as f:
                f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.ca, "-CAkey", self.path("ca.key"),
                    "-CAcreateserial", "-days", "2", "-extfile", self.path("ext"), "-out", self.path(f"{name}.pem"))

    def path(self, name):
        return os.path.join(self.cluster.dir, name)

    def pair(self, name):
        return ["--tls-cert", self.path(f"{name}.pem"), "--tls-key", self.path(f"{name}.key")]

    def run_job(self, worker_args, client_args):
        self.cluster.client_args = client_args
        self.cluster.start_worker("w0", *worker_args)
        self.cluster.wait_worker("w0")
        job = self.cluster.submit(harness.tiny_job(self.data, 5, workers=1))
        self.cluster.wait_state(job, "SUCCEEDED")

    def list_with(self, *args):
        return subprocess.run([harness.program("jobctl"), "--coordinator", self.cluster.address, *args, "list"],
                              capture_output=True, text=True, timeout=harness.patience(60)).returncode

    def test_server_certificate(self):
        self.cluster.start_coordinator(*self.pair("server"))
        self.run_job(["--tls-ca", self.ca], ["--tls-ca", self.ca])
        self.assertEqual(self.list_with(), 1, "clear text was accepted")

    def test_mutual(self):
        self.cluster.start_coordinator(*self.pair("server"), "--tls-ca", self.ca)
        both = ["--tls-ca", self.ca, *self.pair("client")]
        self.run_job(both, both)
        self.assertEqual(self.list_with("--tls-ca", self.ca), 1, "a client without a certificate was accepted")


if __name__ == "__main__":
    harness.main()
