#!/usr/bin/python3
"""A peer made of the generated stubs is a worker like any other: what the other tests here build on."""

import peers
import harness


class PeersTest(harness.ClusterTest):
    WORKERS = 1

    def test_a_worker_by_hand_is_welcomed_and_listed(self):
        peer = peers.RoguePeer(self.cluster.address)
        self.addCleanup(peer.close)
        peer.send(hello=peers.hello("by-hand"))
        welcome = harness.wait_until("a welcome", lambda: peer.of_kind("welcome"))[0]
        self.assertGreater(welcome.heartbeat_seconds, 0)
        names = [w["workerId"] for w in self.cluster.list_workers()]
        self.assertEqual(sorted(names), ["by-hand", "w0"])

    def test_a_stream_without_hello_is_ended(self):
        peer = peers.RoguePeer(self.cluster.address)
        self.addCleanup(peer.close)
        peer.send(heartbeat=peers.agent_pb2.Heartbeat())
        code, _ = peer.wait_end()
        self.assertNotEqual(code, peers.grpc.StatusCode.OK)


if __name__ == "__main__":
    harness.main()
