#include "worker/trainer/comm/rendezvous/mesh.h"

#include <sys/socket.h>

#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/fault/fault.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/comm/rendezvous/handshake.h"

namespace hearth::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Lets strangers in before the ranks: a rank's address is known to its peers only when `visit` has
// returned.
class VisitedStore : public LocalKeyValueStore {
 public:
  explicit VisitedStore(std::function<void(const std::string& address)> visit)
      : visit_(std::move(visit)) {}
  absl::Status Put(std::string_view key, std::string_view value) override {
    if (visit_ && key != "mesh/secret") {
      visit_(std::string(value));
    }
    return LocalKeyValueStore::Put(key, value);
  }

 private:
  const std::function<void(const std::string& address)> visit_;
};

std::string RandomBytes(size_t n) {
  std::mt19937 random(7);
  std::string bytes;
  for (size_t i = 0; i < n; ++i) {
    bytes += static_cast<char>(random());
  }
  return bytes;
}

struct Outcome {
  std::vector<absl::Status> status;
  std::vector<std::vector<Socket>> sockets;
  std::vector<std::string> strangers;
};

Outcome ConnectAll(int world_size, KeyValueStore& store, MeshOptions options = {}) {
  Outcome out;
  out.status.resize(static_cast<size_t>(world_size));
  out.sockets.resize(static_cast<size_t>(world_size));
  absl::Mutex mu;
  options.world_size = world_size;
  options.host = "127.0.0.1";
  options.on_stranger = [&](std::string_view text) {
    absl::MutexLock lock(&mu);
    out.strangers.emplace_back(text);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      MeshOptions own = options;
      own.rank = rank;
      auto made = ConnectMesh(own, store);
      out.status[static_cast<size_t>(rank)] = made.status();
      if (made.ok()) {
        out.sockets[static_cast<size_t>(rank)] = *std::move(made);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return out;
}

// Each rank says its number to each other one.
void ExpectConnected(Outcome& out) {
  const size_t W = out.status.size();
  for (size_t rank = 0; rank < W; ++rank) {
    ASSERT_TRUE(out.status[rank].ok()) << out.status[rank];
    ASSERT_EQ(out.sockets[rank].size(), W);
    EXPECT_FALSE(out.sockets[rank][rank].valid());
    for (size_t peer = 0; peer < W; ++peer) {
      const char text = static_cast<char>(rank);
      ASSERT_TRUE(peer == rank || send(out.sockets[rank][peer].get(), &text, 1, 0) == 1);
    }
  }
  for (size_t rank = 0; rank < W; ++rank) {
    for (size_t peer = 0; peer < W; ++peer) {
      if (peer == rank) {
        continue;
      }
      char text = 0;
      ssize_t got;
      do {
        got = recv(out.sockets[rank][peer].get(), &text, 1, 0);
      } while (got < 0 && (errno == EAGAIN || errno == EINTR));
      EXPECT_EQ(got, 1);
      EXPECT_EQ(static_cast<size_t>(text), peer);
    }
  }
}

TEST(Mesh, FourRanks_EveryTwoAreConnected) {
  LocalKeyValueStore store;
  Outcome out = ConnectAll(4, store);
  ExpectConnected(out);
  EXPECT_TRUE(out.strangers.empty());
}

// A connection that fails on its way is made again; only a rank that cannot listen gives up at
// once. The limit is a dialler that cannot read its welcome: the other rank has taken the
// connection by then, and may close its port before it is dialled again. The first two reads come
// before any welcome: one of a listener, and one of a dialler that takes its answer.
TEST(Mesh, FaultPoints_OneFailure_AllAreConnectedAllTheSame) {
  struct Row {
    const char* point;
    std::vector<int> visits;
  };
  const Row rows[] = {{"rendezvous.dial", {1, 2, 5}},
                      {"rendezvous.send", {1, 2, 5}},
                      {"rendezvous.receive", {1, 2}}};
  for (const auto& [point, visits] : rows) {
    for (const int visit : visits) {
      SCOPED_TRACE(absl::StrCat(point, " ", visit));
      ASSERT_TRUE(fault::Configure(absl::StrCat(point, "=error@", visit)).ok());
      LocalKeyValueStore store;
      Outcome out = ConnectAll(4, store);
      EXPECT_GE(fault::Hits(point), visit);
      EXPECT_TRUE(fault::Configure("").ok());
      ExpectConnected(out);
    }
  }
}

TEST(Mesh, FaultPoints_EveryAttemptFails_TheErrorSaysWhereAndOfWhom) {
  MeshOptions options;
  options.connect_timeout = absl::Milliseconds(300);
  ASSERT_TRUE(fault::Configure("rendezvous.dial=error").ok());
  LocalKeyValueStore undialled;
  const Outcome out = ConnectAll(2, undialled, options);
  EXPECT_EQ(out.status[1].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(out.status[1].message()),
              AllOf(HasSubstr("rank 0 was not connected"), HasSubstr("rendezvous.dial")));
  ASSERT_TRUE(fault::Configure("rendezvous.listen=error").ok());
  LocalKeyValueStore deaf;
  EXPECT_THAT(std::string(ConnectAll(2, deaf, options).status[0].message()),
              HasSubstr("injected fault at rendezvous.listen"));
  EXPECT_TRUE(fault::Configure("").ok());
}

TEST(Mesh, StrangersThatHoldTheirConnections_DisturbNobody) {
  std::vector<Socket> held;
  absl::Mutex mu;
  VisitedStore store([&](const std::string& address) {
    for (const std::string& said :
         {RandomBytes(64), std::string(), std::string("hearth\x01\nmore", 12)}) {
      auto socket = Dial(address);
      ASSERT_TRUE(socket.ok()) << socket.status();
      EXPECT_EQ(send(socket->get(), said.data(), said.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(said.size()));
      absl::MutexLock lock(&mu);
      held.push_back(*std::move(socket));
    }
  });
  Outcome out = ConnectAll(3, store);
  ExpectConnected(out);
  // Rank 2 dials all others, so it is through before it looks at who dialled it.
  EXPECT_GE(out.strangers.size(), 1u);
  for (const std::string& text : out.strangers) {
    EXPECT_THAT(text, HasSubstr("its first bytes are no greeting"));
  }
}

TEST(Mesh, FloodOfConnections_RanksStillGetIn) {
  std::vector<Socket> held;
  absl::Mutex mu;
  VisitedStore store([&](const std::string& address) {
    for (int i = 0; i < 300; ++i) {
      auto socket = Dial(address);
      ASSERT_TRUE(socket.ok()) << socket.status();
      absl::MutexLock lock(&mu);
      held.push_back(*std::move(socket));
    }
  });
  Outcome out = ConnectAll(2, store);
  ExpectConnected(out);
}

TEST(Mesh, StrangerWithoutTheSecret_IsNotTakenForARank) {
  // It knows the protocol and greets as rank 1, whose own connection comes later.
  std::vector<Socket> held;
  absl::Mutex mu;
  VisitedStore store([&](const std::string& address) {
    auto socket = Dial(address);
    ASSERT_TRUE(socket.ok()) << socket.status();
    std::string greeting = Handshake::Dialler(GangSecret{}, 1, 0, Handshake::Nonce{}).output();
    greeting += std::string(32, 'x');  // for a proof
    EXPECT_EQ(send(socket->get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
    absl::MutexLock lock(&mu);
    held.push_back(*std::move(socket));
  });
  Outcome out = ConnectAll(2, store);
  ExpectConnected(out);
  for (const std::string& text : out.strangers) {
    EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("does not know the gang's secret"),
                                       HasSubstr("for another rank")));
  }
}

TEST(Mesh, RankThatNeverComes_IsNamed) {
  LocalKeyValueStore store;
  MeshOptions options;
  options.world_size = 2;
  options.host = "127.0.0.1";
  options.gather_timeout = absl::Milliseconds(20);
  const auto made = ConnectMesh(options, store);
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("rank 1 did not come"));
}

TEST(Mesh, RankThatIsNotThereAnyMore_IsNamedWithItsAddress) {
  LocalKeyValueStore store;
  std::string address;
  {
    auto listener = Listen("127.0.0.1");
    ASSERT_TRUE(listener.ok());
    address = listener->address;
  }
  ASSERT_TRUE(store.Put("mesh/0", address).ok());
  ASSERT_TRUE(store.Put("mesh/secret", std::string(32, 's')).ok());
  MeshOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.host = "127.0.0.1";
  options.connect_timeout = absl::Milliseconds(100);
  const auto made = ConnectMesh(options, store);
  EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  EXPECT_THAT(std::string(made.status().message()),
              HasSubstr(absl::StrCat("rank 0 was not connected within 100ms (", address)));
}

}  // namespace
}  // namespace hearth::trainer
