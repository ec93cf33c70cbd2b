#!/usr/bin/python3
"""Tests of who may do what: tokens and their roles, the owners of jobs, admins who act as others, certificates, and the audit log."""

import json
import os
import stat
import subprocess

import grpc
import harness
import reflection_test

AUTH = 4  # exit code of jobctl
VIEWER, OPERATOR, ADMIN, WORKER = 1, 2, 3, 4
ONE_SIDED = ("hearth.v1.JobService", "hearth.v1.WorkerService", "hearth.v1.IdentityService", "hearth.v1.AgentService",
             "hearth.v1.CoordinatorService", "hearth.v1.GenerateService", "hearth.v1.PlanService")


class RolesTest(harness.ClusterTest):
    WORKERS = 0

    def setUp(self):
        super().setUp()
        # A home without tokens, as on another machine or for another account.
        self.away = os.path.join(self.cluster.dir, "away")
        os.mkdir(self.away)
        self.env_away = dict(self.cluster.env, HEARTH_HOME=self.away, XDG_CONFIG_HOME=os.path.join(self.away, "config"))

    def path(self, name):
        return os.path.join(self.cluster.dir, name + ".token")

    def token(self, name, role, *args):
        """Makes a token, and returns the arguments with which jobctl uses it."""
        self.cluster.jobctl("token", "create", name, "--role", role, "--output-file", self.path(name), *args)
        return ["--token-file", self.path(name)]

    def run_as(self, who, *args, stdin=None):
        """jobctl from elsewhere, with the arguments `who`."""
        return subprocess.run([harness.program("jobctl"), "--coordinator", self.cluster.address, *who, *map(str, args)],
                              capture_output=True, text=True, timeout=harness.patience(60), env=self.env_away, input=stdin)

    def works(self, who, *args, stdin=None):
        run = self.run_as(who, *args, stdin=stdin)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def assert_refused(self, run, *texts):
        self.assertEqual(run.returncode, AUTH, run.stdout + run.stderr)
        for text in texts:
            self.assertIn(text, run.stderr)

    def submit_as(self, who, steps=10**6):
        spec = harness.tiny_job(self.data, steps, workers=1)
        return self.run_as(who, "submit", "-f", "-", "-o", "name", stdin=json.dumps(spec))

    def job_of(self, who):
        run = self.submit_as(who)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.strip().removeprefix("job/")

    def test_without_a_token_nothing_is_told(self):
        self.assert_refused(self.run_as([], "list"), f"no token for {self.cluster.address}", "--token-file FILE",
                            "jobctl token create")
        self.assert_refused(self.run_as([], "watch", "job"), "no token for")
        with open(self.path("wrong"), "w") as f:
            f.write("0" * 64 + "\n")
        self.assert_refused(self.run_as(["--token-file", self.path("wrong")], "list"), "chmod 600")
        os.chmod(self.path("wrong"), 0o600)
        self.assert_refused(self.run_as(["--token-file", self.path("wrong")], "list"))
        self.assert_refused(self.run_as(["--token-file", self.path("absent")], "list"), self.path("absent"))
        # Health and reflection tell nothing about jobs, and monitors use them.
        client = reflection_test.GenericClient(self.cluster.address)
        self.assertIn("hearth.v1.IdentityService", client.services())
        self.assertEqual(client.call("grpc.health.v1.Health", "Check", service="").status, 1)

    def test_the_coordinators_own_tokens_are_for_its_account(self):
        caller = self.cluster.json("whoami")
        self.assertEqual((caller["role"], caller["token"]), ("ROLE_ADMIN", "local"))
        for worker in (False, True):
            path = harness.token_file(self.cluster.address, worker)
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            with open(path) as f:
                secret = f.readline().strip()
            self.assertGreaterEqual(len(secret), 32)
            for name in ("store.db", "store.db-wal"):
                store = os.path.join(self.cluster.dir, "coordinator", name)
                if os.path.exists(store):
                    with open(store, "rb") as f:
                        self.assertNotIn(secret.encode(), f.read())
        with open(harness.token_file(self.cluster.address)) as f:
            before = f.read()
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        with open(harness.token_file(self.cluster.address)) as f:
            self.assertEqual(f.read(), before, "a restart keeps it: clients that run go on")
        self.assertIn("(admin), token local, from 127.0.0.1", self.cluster.jobctl("whoami").stdout)

    def test_roles_and_owners(self):
        viewer = self.token("v", "viewer", "--user", "vera")
        alice, bob = self.token("alice", "operator"), self.token("bob", "operator")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("alice")).st_mode), 0o600)
        self.assertEqual(self.works(alice, "whoami"), "alice (operator), token alice, from 127.0.0.1\n")
        self.assert_refused(self.submit_as(viewer), "operator")
        job = self.job_of(alice)
        self.assertEqual(json.loads(self.works(viewer, "-o", "json", "get", job))["owner"], "alice")
        self.assertIn("alice", self.works(viewer, "-o", "wide", "list"))
        self.assertEqual(self.works(viewer, "-o", "name", "list", "--owner", "alice"), f"job/{job}\n")
        self.assertEqual(self.works(viewer, "-o", "name", "list", "--owner", "bob"), "")
        self.assertRegex(self.works(viewer, "describe", job), r"Owner: +alice\n")
        tiny = harness.tiny_job(self.data, 10, precision={"recipe": "bf16"}, resources={"device": "cuda", "workers": 1})
        plan = ["plan", "-", "--gpu", "H200", "--on-coordinator"]
        self.assertIn("on 1 x H200: YES", self.works(viewer, *plan, stdin=json.dumps(tiny)))
        del tiny["model"]["vocab"]  # to be asked of a worker, which shows what lies there
        run = self.run_as(viewer, *plan, stdin=json.dumps(tiny))
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertIn("a viewer may not ask workers", run.stderr)
        for who in (viewer, bob):
            self.assert_refused(self.run_as(who, "cancel", job))
            self.assert_refused(self.run_as(who, "update", job, "--priority", 5))
        self.assert_refused(self.run_as(alice, "token", "list"), "admin")
        self.assert_refused(self.run_as(alice, "audit"), "admin")
        self.assert_refused(self.run_as([*bob, "--as", "alice"], "cancel", job))
        self.works(alice, "update", job, "--priority", 5)
        admin = self.token("root", "admin")
        second = self.job_of([*admin, "--as", "bob"])
        self.assertEqual(self.cluster.job(second)["owner"], "bob")
        self.assertIn("root as bob", self.works([*admin, "--as", "bob"], "whoami"))
        self.works(bob, "cancel", second)
        self.works(admin, "cancel", job)
        actors = {event["actor"] for event in self.cluster.events(job)}
        self.assertLessEqual({"user:alice", "user:root"}, actors)

        records = self.cluster.json("audit", "--limit", 0)["records"]
        told = [(r["caller"]["user"], r["method"], r["target"], r["outcome"]) for r in records]
        self.assertIn(("bob", "CancelJob", job, "PERMISSION_DENIED"), told)
        self.assertIn(("alice", "UpdateJob", job, "OK"), told)
        self.assertIn(("root", "CancelJob", job, "OK"), told)
        acted = [r["caller"] for r in records if r["method"] == "CreateJob" and r["target"] == second]
        self.assertEqual([(c["user"], c["realUser"], c["token"], c["address"]) for c in acted], [("bob", "root", "root", "127.0.0.1")])
        numbers = [int(r["number"]) for r in records]
        self.assertEqual(numbers, list(range(len(numbers), 0, -1)), "newest first, without gaps")
        refused = self.cluster.jobctl("audit", "--refused", "--target", job).stdout
        self.assertIn("PERMISSION_DENIED", refused)
        self.assertNotIn(" OK", refused)
        self.assertEqual({r["caller"]["user"] for r in self.cluster.json("audit", "--user", "bob")["records"]}, {"bob"})

    def test_audit_survives_a_crash(self):
        alice = self.token("alice", "operator")
        job = self.job_of(alice)
        before = self.cluster.json("audit", "--limit", 0)["records"]
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        after = self.cluster.json("audit", "--limit", 0)["records"]
        self.assertEqual([r for r in after if int(r["number"]) <= int(before[0]["number"])], before)
        self.works(alice, "get", job)

    def test_expired_and_revoked_tokens_are_refused_and_their_streams_end(self):
        self.cluster.start_worker("w0")
        self.cluster.wait_worker("w0")
        short = self.token("short", "viewer", "--expires", "2s")
        self.works(short, "list")
        run = harness.wait_until("the expiry", lambda: (lambda r: r if r.returncode != 0 else None)(self.run_as(short, "list")), 30)
        self.assert_refused(run, "expired")
        alice = self.token("alice", "operator")
        job = self.job_of(alice)
        self.cluster.wait_step(job, 1)
        followers = [subprocess.Popen([harness.program("jobctl"), "--coordinator", self.cluster.address, *alice, *command],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env_away)
                     for command in (["watch", job], ["logs", "-f", job], ["metrics", "-f", job, "-o", "csv"])]
        for follower in followers:
            self.assertTrue(follower.stdout.readline())
        self.assertIn("revoked", self.cluster.jobctl("token", "revoke", "alice").stdout)
        for follower in followers:
            _, said = follower.communicate(timeout=harness.patience(30))
            self.assertEqual(follower.returncode, AUTH, said)
        self.assert_refused(self.run_as(alice, "list"))
        self.assertEqual(self.cluster.job(job)["state"], "JOB_STATE_RUNNING", "the job goes on without its owner's token")
        self.assertEqual(self.cluster.jobctl("token", "revoke", "alice", check=False).returncode, 1)
        self.cluster.jobctl("cancel", job, "--now")

    def test_a_workers_token_is_for_that_worker_alone(self):
        token = self.token("w0", "worker", "--worker", "w0")
        listed = self.cluster.json("token", "list")["tokens"]
        self.assertEqual([(t["name"], t["role"], t["workerId"]) for t in listed], [("w0", "ROLE_WORKER", "w0")])
        for command in (["list"], ["workers"], ["whoami"], ["cordon", "w0"], ["token", "list"]):
            self.assert_refused(self.run_as(token, *command))
        self.cluster.env = self.env_away  # no local token there
        daemon = self.cluster.start_worker("w1", *token)
        harness.wait_until("the refusal", lambda: "refused by coordinator" in daemon.output())
        bare = self.cluster.start_worker("w2")
        harness.wait_until("the refusal", lambda: "--token-file FILE" in bare.output())
        later = self.cluster.start_worker("w3", "--token-file", self.path("w3"))
        harness.wait_until("the missing file", lambda: self.path("w3") in later.output())
        self.cluster.start_worker("w0", *token)
        self.cluster.env = dict(self.env_away, HEARTH_HOME=self.cluster.dir)
        self.cluster.wait_worker("w0")
        self.token("w3", "worker", "--worker", "w3")
        self.cluster.wait_worker("w3")
        self.assertEqual(sorted(w["workerId"] for w in self.cluster.list_workers()), ["w0", "w3"])
        self.assertTrue(daemon.alive(), "it keeps trying: an admin may make its token meanwhile")

        # Its token is revoked: the stream ends, the daemon lives and comes back with the next one.
        self.cluster.jobctl("token", "revoke", "w0")
        harness.wait_until("the end of its stream", lambda: "refused by coordinator" in self.cluster.workers["w0"].output())
        self.token("w0", "worker", "--worker", "w0")
        self.cluster.wait_worker("w0")
        # A trainer gets no token: neither its environment nor its command line has one.
        job = self.cluster.submit(harness.tiny_job(self.data, 10**6, workers=1))
        self.cluster.wait_step(job, 1)
        with open(self.path("w0")) as f:
            secret = f.read().strip().encode()
        for name in ("w0", "w3"):
            for pid in self.cluster.trainer_pids(name):
                for kind in ("environ", "cmdline"):
                    with open(f"/proc/{pid}/{kind}", "rb") as f:
                        text = f.read()
                    self.assertNotIn(secret, text)
                    self.assertNotIn(b".token", text)
        self.cluster.jobctl("cancel", job, "--now")

    def test_every_call_has_its_role(self):
        tokens = {}
        for role, args in ((VIEWER, ()), (OPERATOR, ()), (WORKER, ("--worker", "w9"))):
            name = {VIEWER: "viewer", OPERATOR: "operator", WORKER: "worker"}[role]
            self.token(name, name, *args)
            with open(self.path(name)) as f:
                tokens[role] = [("authorization", "Bearer " + f.read().strip())]
        client = Caller(self.cluster.address)
        checked = 0
        for service in ONE_SIDED:
            for method, needed in client.roles(service).items():
                with self.subTest(f"{service}.{method}"):
                    self.assertIn(needed, (VIEWER, OPERATOR, ADMIN, WORKER))
                    self.assertEqual(client.try_call(service, method, []), grpc.StatusCode.UNAUTHENTICATED)
                    self.assertEqual(client.try_call(service, method, [("authorization", "Bearer nonsense")]),
                                     grpc.StatusCode.UNAUTHENTICATED)
                    for role, metadata in tokens.items():
                        allowed = role == WORKER if needed == WORKER else role != WORKER and role >= needed
                        code = client.try_call(service, method, metadata)
                        if allowed:
                            self.assertNotIn(code, (grpc.StatusCode.UNAUTHENTICATED,), role)
                        else:
                            self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED, role)
                checked += 1
        self.assertGreater(checked, 30)

    def test_contexts_choose_coordinator_and_token(self):
        alice = self.token("alice", "operator")
        said = self.works(alice, "context", "add", "lab")
        self.assertEqual(said, "context/lab added, and in use\n")
        path = os.path.join(self.away, "config", "hearth", "context.json")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

        def plain(*args):
            env = {k: v for k, v in self.env_away.items() if k != "HEARTH_COORDINATOR"}
            return subprocess.run([harness.program("jobctl"), *args], capture_output=True, text=True, timeout=harness.patience(60), env=env)

        self.assertIn("alice (operator)", plain("whoami").stdout)
        self.assertEqual(plain("context", "add", "other", "--coordinator", "127.0.0.1:1").returncode, 0)
        self.assertIn("127.0.0.1:1", plain("--context", "other", "list").stderr)
        self.assertEqual(plain("context", "use", "context/other").stdout, "context/other in use\n")
        self.assertIn("127.0.0.1:1", plain("list").stderr)
        self.assertEqual(plain("context", "list", "-o", "name").stdout, "context/lab\ncontext/other\n")
        self.assertEqual(plain("context", "remove", "other").returncode, 0)
        self.assertEqual(plain("--context", "other", "list").returncode, 2)
        self.assertEqual(plain("context", "add", "nothing").returncode, 2)
        self.assertIn("alice (operator)", plain("--context", "lab", "whoami").stdout)

    def test_making_tokens(self):
        run = self.cluster.jobctl("token", "create", "ci", "--role", "operator", "--expires", "30d")
        secret = run.stdout.strip()
        self.assertNotIn(secret, run.stderr)
        self.assertIn("operator for user ci", run.stderr)
        with open(self.path("ci"), "w") as f:
            f.write(secret)
        os.chmod(self.path("ci"), 0o600)
        self.works(["--token-file", self.path("ci")], "list")
        for bad in (["ci", "--role", "viewer"], ["w", "--role", "worker"], ["x", "--role", "viewer", "--worker", "w"],
                    ["a b", "--role", "viewer"], ["local", "--role", "viewer"]):
            self.assertEqual(self.cluster.jobctl("token", "create", *bad, check=False).returncode, 1, bad)
        self.assertEqual(self.cluster.jobctl("token", "create", "y", "--role", "king", check=False).returncode, 2)
        # A secret that could not be kept is not made.
        run = self.cluster.jobctl("token", "create", "z", "--role", "viewer", "--output-file", "/absent/z", check=False)
        self.assertEqual(run.returncode, 1)
        self.assertEqual([t["name"] for t in self.cluster.json("token", "list")["tokens"]], ["ci"])
        rows = self.cluster.jobctl("token", "list").stdout.splitlines()
        self.assertEqual(rows[0].split(), ["NAME", "USER", "ROLE", "WORKER", "EXPIRES", "CREATED-BY"])
        self.assertEqual(rows[1].split()[:4], ["ci", "ci", "operator", "-"])
        self.assertNotIn(secret, self.cluster.jobctl("audit", "-o", "json").stdout)


class NoAuthTest(harness.unittest.TestCase):
    def test_no_auth_asks_nobody(self):
        cluster = harness.Cluster(["--no-auth"])
        self.addCleanup(cluster.close)
        cluster.start_coordinator()
        cluster.env["HEARTH_HOME"] = os.path.join(cluster.dir, "away")
        self.assertEqual(cluster.jobctl("list").returncode, 0)
        cluster.start_worker("w0")
        cluster.wait_worker("w0")


class Caller(reflection_test.GenericClient):
    """Calls any method with an empty request."""

    def roles(self, service):
        """The role that each method of the service says it needs."""
        self.load(file_containing_symbol=service)
        self.load(file_by_filename="google/protobuf/descriptor.proto")
        factory = reflection_test.message_factory.MessageFactory(self.pool)
        options = factory.GetPrototype(self.pool.FindMessageTypeByName("google.protobuf.MethodOptions"))
        row = self.pool.FindExtensionByName("hearth.v1.call")
        options.RegisterExtension(row)
        factory.GetPrototype(row.message_type)
        return {m.name: options.FromString(m.GetOptions().SerializeToString()).Extensions[row].role
                for m in self.pool.FindServiceByName(service).methods}

    def try_call(self, service, method, metadata):
        """The status code of a call with an empty request; of a stream, when it has ended or said something."""
        descriptor = self.pool.FindServiceByName(service).methods_by_name[method]
        proto = reflection_test.descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, True): "stream_stream"}[
            proto.client_streaming, proto.server_streaming]
        call = getattr(self.channel, kind)(f"/{service}/{method}", request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = call(iter([b""]) if proto.client_streaming else b"", timeout=20, metadata=metadata)
            if proto.server_streaming:
                next(iter(answer), None)
                answer.cancel()
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


class CertificateTest(harness.unittest.TestCase):
    """Mutual TLS: a certificate stands for a user when an admin said so, and for nobody otherwise."""

    def setUp(self):
        self.cluster = harness.Cluster()
        self.addCleanup(self.cluster.close)
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca", "-keyout",
                     self.path("ca.key"), "-out", self.path("ca.pem"))
        with open(self.path("ext"), "w") as f:
            f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        for name in ("server", "alice", "stranger"):
            self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}.example", "-keyout", self.path(name + ".key"),
                         "-out", self.path(name + ".csr"))
            self.openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"),
                         "-CAcreateserial", "-days", "2", "-extfile", self.path("ext"), "-out", self.path(name + ".pem"))

    def path(self, name):
        return os.path.join(self.cluster.dir, name)

    @staticmethod
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    def pair(self, name):
        return ["--tls-ca", self.path("ca.pem"), "--tls-cert", self.path(name + ".pem"), "--tls-key", self.path(name + ".key")]

    def test_a_certificate_stands_for_a_user(self):
        self.cluster.start_coordinator(*self.pair("server"))
        home = self.cluster.env["HEARTH_HOME"]
        away = os.path.join(home, "away")
        self.cluster.client_args = self.pair("stranger")
        made = self.cluster.jobctl("token", "create", "alice", "--role", "operator", "--certificate", "alice.example")
        self.assertEqual(made.stdout, "token/alice created\n")
        self.cluster.env["HEARTH_HOME"] = away
        refused = self.cluster.jobctl("list", check=False)
        self.assertEqual(refused.returncode, AUTH, refused.stderr)
        self.cluster.client_args = self.pair("alice")
        self.assertIn("alice (operator), token alice", self.cluster.jobctl("whoami").stdout)
        self.cluster.env["HEARTH_HOME"] = home
        self.cluster.client_args = self.pair("stranger")
        self.cluster.jobctl("token", "revoke", "alice")
        self.cluster.env["HEARTH_HOME"] = away
        self.cluster.client_args = self.pair("alice")
        self.assertEqual(self.cluster.jobctl("list", check=False).returncode, AUTH)


if __name__ == "__main__":
    harness.main()
