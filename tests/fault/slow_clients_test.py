#!/usr/bin/python3
"""Clients that never finish what they begin: half-open requests, unread answers, silent streams. Others are still served."""

import socket
import threading
import time

import peers
import harness
from peers import grpc
from hearth.v1 import job_pb2


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


class SlowClientsTest(harness.ClusterTest):
    WORKERS = 1

    def open_all(self, address, count, said):
        sockets = []
        for _ in range(count):
            s = connect(address)
            s.sendall(said)
            sockets.append(s)
        self.addCleanup(lambda: [s.close() for s in sockets])
        return sockets

    def assert_answers(self, address):
        begin = time.monotonic()
        self.assertEqual(self.cluster.get("/healthz", address), "ok\n")
        self.assertIn("hearth_build_info", self.cluster.get("/metrics", address))
        self.assertLess(time.monotonic() - begin, 2)

    def test_half_open_requests_delay_nobody(self):
        worker = self.cluster.list_workers()[0]["httpAddress"]
        for address in (self.cluster.http, worker):
            with self.subTest(address):
                for count in (4, 40, 400):
                    self.open_all(address, count, b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
                    self.assert_answers(address)

    def test_answers_that_nobody_reads_delay_nobody(self):
        self.open_all(self.cluster.http, 100, b"GET /metrics HTTP/1.1\r\n\r\n")
        self.open_all(self.cluster.http, 100, b"GET /app.js HTTP/1.1\r\n\r\n")
        self.assert_answers(self.cluster.http)

    def test_a_stream_without_hello_is_ended(self):
        peer = peers.RoguePeer(self.cluster.address)
        self.addCleanup(peer.close)
        begin = time.monotonic()
        code, details = peer.wait_end(timeout=20)
        self.assertEqual(code, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertIn("no Hello within 10s", details)
        self.assertGreater(time.monotonic() - begin, 5)

    def test_one_address_cannot_wait_without_end(self):
        opened = [peers.RoguePeer(self.cluster.address) for _ in range(300)]
        self.addCleanup(lambda: [peer.close() for peer in opened])
        harness.wait_until("44 refusals", lambda: sum(peer.ended.is_set() for peer in opened) >= 44, 9)
        refused = [peer.code for peer in opened if peer.ended.is_set()]
        self.assertEqual(set(refused), {grpc.StatusCode.RESOURCE_EXHAUSTED})
        # 10 s later they are gone, and a daemon of this address is let in.
        self.cluster.start_worker("late")
        self.cluster.wait_worker("late")

    def test_one_client_cannot_take_all_streams(self):
        job_id = self.cluster.submit(harness.tiny_job(self.data, steps=10**6, workers=1))
        self.cluster.wait_step(job_id, 1)
        codes = []
        lock = threading.Lock()
        calls = []
        for _ in range(300):
            call = peers.jobs(self.cluster.address).WatchJob(job_pb2.WatchJobRequest(job_id=job_id))
            calls.append(call)

        def first(call):
            try:
                next(call)
                code = grpc.StatusCode.OK
            except grpc.RpcError as error:
                code = error.code()
            with lock:
                codes.append(code)

        threads = [threading.Thread(target=first, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.addCleanup(lambda: [call.cancel() for call in calls])
        self.assertEqual(codes.count(grpc.StatusCode.OK), 256)
        self.assertEqual(codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED), 44)
        self.assertEqual(self.cluster.job(job_id)["state"], "JOB_STATE_RUNNING")
        self.cluster.jobctl("cancel", job_id, "--now")


if __name__ == "__main__":
    harness.main()
