#include "worker/trainer/comm/rendezvous/mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/fault/fault.h"
#include "worker/trainer/comm/rendezvous/handshake.h"

namespace hearth::trainer {
namespace {

// Connections that dialled this rank and have proven nothing, and as many more as there are ranks.
// One more, and the oldest goes.
constexpr int kPendingMax = 256;
constexpr int kStrangersTold = 8;
constexpr absl::Duration kFirstRedial = absl::Milliseconds(20);
constexpr absl::Duration kLongestRedial = absl::Seconds(1);
constexpr absl::Duration kLongestPoll = absl::Seconds(1);

std::string AddressKey(int rank) {
  return absl::StrCat("mesh/", rank);
}
constexpr char kSecretKey[] = "mesh/secret";

// A connection on its way.
struct Pending {
  Socket socket;
  Handshake handshake;
  bool dialled = false;     // by this rank
  bool connecting = false;  // TCP is not there yet
  absl::Duration deadline = absl::InfiniteDuration();

  bool greeted() const { return handshake.peer() >= 0; }
  bool through() { return handshake.done() && handshake.output().empty(); }
};

// A lower rank, which this one dials until it is connected.
struct Target {
  std::string address;
  absl::Duration next_dial;  // infinite while one is on its way
  absl::Duration pause = kFirstRedial;
  std::string last_error;
};

class MeshBuilder {
 public:
  MeshBuilder(const MeshOptions& options, Clock& clock, Listener listener)
      : options_(options),
        clock_(clock),
        listener_(std::move(listener)),
        connected_(static_cast<size_t>(options.world_size)),
        targets_(static_cast<size_t>(options.rank)) {}

  absl::Status Gather(KeyValueStore& store);
  absl::Status Connect();
  std::vector<Socket> TakeSockets() { return std::move(connected_); }

 private:
  absl::Duration Now() { return clock_.Monotonic(); }
  int FirstMissing() const;
  absl::Status DialDue();
  absl::Status Accept();
  absl::StatusOr<Handshake::Nonce> NewNonce() const;
  void MakeRoom();
  absl::Duration NextEvent();
  // Moves one connection on. Not OK: it is to be dropped.
  absl::Status Progress(Pending& pending);
  absl::Status Send(Pending& pending);
  absl::Status Receive(Pending& pending);
  void Settle(Pending& pending, const absl::Status& status);
  void DropOverdue();
  void TellStranger(const Pending& pending, std::string_view why);
  absl::Status NotConnected(int rank) const;

  const MeshOptions& options_;
  Clock& clock_;
  Listener listener_;
  GangSecret secret_ = {};
  std::vector<Socket> connected_;
  std::vector<Target> targets_;
  std::vector<std::unique_ptr<Pending>> pending_;  // oldest first
  int strangers_ = 0;
  std::string last_stranger_;
};

absl::Status MeshBuilder::Gather(KeyValueStore& store) {
  const absl::Duration deadline = Now() + options_.gather_timeout;
  const auto wait = [&](const std::string& key) {
    return store.Wait(key, std::max(deadline - Now(), absl::Milliseconds(1)));
  };
  if (options_.rank == 0) {
    // A secret of this epoch. Only the gang's ranks get it, through the keys that the coordinator
    // keeps.
    HEARTH_RETURN_IF_ERROR(FillRandom(secret_.data(), secret_.size()));
    HEARTH_RETURN_IF_ERROR(
        store.Put(kSecretKey,
                  std::string_view(reinterpret_cast<const char*>(secret_.data()), secret_.size())));
  }
  // Each rank tells its own address before it waits for others, so that none waits for one that
  // waits for it.
  HEARTH_RETURN_IF_ERROR(store.Put(AddressKey(options_.rank), listener_.address));
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) {
      continue;
    }
    absl::StatusOr<std::string> address = wait(AddressKey(rank));
    if (!address.ok()) {
      return absl::Status(
          address.status().code(),
          absl::StrCat("rank ", rank, " did not come: ", address.status().message()));
    }
    // The higher rank of a pair dials. The address of a higher one only shows that it has come.
    if (rank < options_.rank) {
      targets_[static_cast<size_t>(rank)].address = *std::move(address);
    }
  }
  if (options_.rank > 0) {
    HEARTH_ASSIGN_OR_RETURN(const std::string secret, wait(kSecretKey));
    if (secret.size() != secret_.size()) {
      return absl::InternalError(
          absl::StrCat("the gang's secret has ", secret.size(), " bytes, not ", secret_.size()));
    }
    std::memcpy(secret_.data(), secret.data(), secret_.size());
  }
  return absl::OkStatus();
}

int MeshBuilder::FirstMissing() const {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank != options_.rank && !connected_[static_cast<size_t>(rank)].valid()) {
      return rank;
    }
  }
  return -1;
}

absl::StatusOr<Handshake::Nonce> MeshBuilder::NewNonce() const {
  Handshake::Nonce nonce;
  HEARTH_RETURN_IF_ERROR(FillRandom(nonce.data(), nonce.size()));
  return nonce;
}

absl::Status MeshBuilder::DialDue() {
  for (size_t rank = 0; rank < targets_.size(); ++rank) {
    Target& target = targets_[rank];
    if (target.next_dial > Now()) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const Handshake::Nonce nonce, NewNonce());
    absl::StatusOr<Socket> socket = Dial(target.address);
    if (!socket.ok()) {
      target.last_error = std::string(socket.status().message());
      target.next_dial = Now() + target.pause;
      target.pause = std::min(2 * target.pause, kLongestRedial);
      continue;
    }
    // Settle() sets the time of the next attempt if this one fails.
    target.next_dial = absl::InfiniteDuration();
    pending_.push_back(std::make_unique<Pending>(Pending{
        *std::move(socket),
        Handshake::Dialler(secret_, options_.rank, static_cast<int>(rank), nonce), true, true}));
  }
  return absl::OkStatus();
}

// Before one more is accepted: first whoever has not even greeted goes.
void MeshBuilder::MakeRoom() {
  const auto dialled_us = [](const std::unique_ptr<Pending>& p) { return !p->dialled; };
  if (std::count_if(pending_.begin(), pending_.end(), dialled_us) <
      kPendingMax + options_.world_size) {
    return;
  }
  auto victim = std::find_if(pending_.begin(), pending_.end(),
                             [](const auto& p) { return !p->dialled && !p->greeted(); });
  if (victim == pending_.end()) {
    victim = std::find_if(pending_.begin(), pending_.end(), dialled_us);
  }
  TellStranger(**victim, "too many connections that prove nothing");
  pending_.erase(victim);
}

absl::Status MeshBuilder::Accept() {
  for (;;) {
    Socket socket(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      // What else accept says is about one connection that has ended, or passes.
      const bool broken = errno == EBADF || errno == EINVAL || errno == ENOTSOCK;
      return broken ? absl::InternalError(absl::StrCat("accept: ", ErrnoText(errno)))
                    : absl::OkStatus();
    }
    MakeRoom();
    HEARTH_ASSIGN_OR_RETURN(const Handshake::Nonce nonce, NewNonce());
    pending_.push_back(std::make_unique<Pending>(
        Pending{std::move(socket), Handshake::Listener(secret_, options_.rank, nonce), false, false,
                Now() + options_.handshake_timeout}));
  }
}

absl::Status MeshBuilder::Send(Pending& pending) {
  std::string& output = pending.handshake.output();
  if (!output.empty()) {
    HEARTH_RETURN_IF_ERROR(fault::Check("rendezvous.send"));
  }
  while (!output.empty()) {
    const ssize_t put = send(pending.socket.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (put > 0) {
      output.erase(0, static_cast<size_t>(put));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return absl::UnavailableError(ErrnoText(errno));
    }
  }
  return absl::OkStatus();
}

absl::Status MeshBuilder::Receive(Pending& pending) {
  char bytes[128];
  if (pending.handshake.wanted() > 0) {
    HEARTH_RETURN_IF_ERROR(fault::Check("rendezvous.receive"));
  }
  while (pending.handshake.wanted() > 0) {
    const size_t most = std::min(sizeof bytes, pending.handshake.wanted());
    const ssize_t got = recv(pending.socket.get(), bytes, most, 0);
    if (got == 0) {
      return absl::UnavailableError("it closed the connection");
    }
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? absl::OkStatus()
                                                     : absl::UnavailableError(ErrnoText(errno));
    }
    // Receive asks for no byte beyond the handshake: what follows belongs to the collectives.
    HEARTH_RETURN_IF_ERROR(
        pending.handshake.Take(std::string_view(bytes, static_cast<size_t>(got))));
    HEARTH_RETURN_IF_ERROR(Send(pending));
  }
  return absl::OkStatus();
}

absl::Status MeshBuilder::Progress(Pending& pending) {
  if (pending.connecting) {
    HEARTH_RETURN_IF_ERROR(ConnectError(pending.socket));
    pending.connecting = false;
  }
  HEARTH_RETURN_IF_ERROR(Send(pending));
  HEARTH_RETURN_IF_ERROR(Receive(pending));
  const int peer = pending.handshake.peer();
  // Higher ranks dial lower ones, so whoever dials this rank must be higher.
  const bool in_world = peer < options_.world_size && (pending.dialled || peer > options_.rank);
  if (pending.greeted() && !in_world) {
    return absl::PermissionDeniedError(absl::StrCat("it calls itself rank ", peer));
  }
  return absl::OkStatus();
}

// Takes a finished connection, or draws the consequence of one that failed.
void MeshBuilder::Settle(Pending& pending, const absl::Status& status) {
  const int peer = pending.handshake.peer();
  if (status.ok()) {
    // A rank that dials twice did not hear the welcome of the first time.
    connected_[static_cast<size_t>(peer)] = std::move(pending.socket);
    return;
  }
  if (!pending.dialled) {
    TellStranger(pending, std::string(status.message()));
    return;
  }
  Target& target = targets_[static_cast<size_t>(peer)];
  target.last_error = std::string(status.message());
  target.next_dial = Now() + target.pause;
  target.pause = std::min(2 * target.pause, kLongestRedial);
}

void MeshBuilder::TellStranger(const Pending& pending, std::string_view why) {
  last_stranger_ = absl::StrCat(PeerName(pending.socket), ": ", std::string(why));
  if (++strangers_ <= kStrangersTold && options_.on_stranger) {
    options_.on_stranger(last_stranger_);
  }
}

void MeshBuilder::DropOverdue() {
  std::erase_if(pending_, [this](const std::unique_ptr<Pending>& pending) {
    if (pending->deadline > Now()) {
      return false;
    }
    TellStranger(*pending, absl::StrCat("no handshake within ",
                                        absl::FormatDuration(options_.handshake_timeout)));
    return true;
  });
}

absl::Duration MeshBuilder::NextEvent() {
  absl::Duration next = Now() + kLongestPoll;
  for (const Target& target : targets_) {
    next = std::min(next, target.next_dial);
  }
  for (const auto& pending : pending_) {
    next = std::min(next, pending->deadline);
  }
  return next;
}

absl::Status MeshBuilder::NotConnected(int rank) const {
  std::string text = absl::StrCat("rank ", rank, " was not connected within ",
                                  absl::FormatDuration(options_.connect_timeout));
  if (rank < options_.rank) {
    const Target& target = targets_[static_cast<size_t>(rank)];
    absl::StrAppend(&text, " (", target.address,
                    target.last_error.empty() ? "" : absl::StrCat(": ", target.last_error), ")");
  }
  if (strangers_ > 0) {
    absl::StrAppend(&text, "; ", strangers_, " connections of no rank were dropped, last ",
                    last_stranger_);
  }
  return absl::DeadlineExceededError(text);
}

absl::Status MeshBuilder::Connect() {
  const absl::Duration deadline = Now() + options_.connect_timeout;
  for (Target& target : targets_) {
    target.next_dial = Now();
  }
  std::vector<pollfd> polled;
  // One thread drives all connections, so that a silent stranger holds nobody up.
  for (int missing = FirstMissing(); missing >= 0; missing = FirstMissing()) {
    if (Now() >= deadline) {
      return NotConnected(missing);
    }
    HEARTH_RETURN_IF_ERROR(DialDue());
    polled.assign(1, {listener_.socket.get(), POLLIN, 0});
    for (const auto& pending : pending_) {
      // A connection that is being made becomes writable when it stands or has failed.
      const bool sends = pending->connecting || !pending->handshake.output().empty();
      polled.push_back({pending->socket.get(),
                        static_cast<decltype(pollfd::events)>(sends ? POLLOUT : POLLIN), 0});
    }
    const absl::Duration wait =
        std::clamp(std::min(NextEvent(), deadline) - Now(), absl::ZeroDuration(), kLongestPoll);
    const int64_t milliseconds = absl::ToInt64Milliseconds(wait + absl::Milliseconds(1));
    if (poll(polled.data(), polled.size(), static_cast<int>(milliseconds)) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", ErrnoText(errno)));
    }
    // `polled` has the listener and then the connections in this order. Nothing is added to or
    // taken from pending_ before the loop is over.
    for (size_t i = 0; i < pending_.size(); ++i) {
      if (polled[i + 1].revents == 0) {
        continue;
      }
      const absl::Status status = Progress(*pending_[i]);
      if (!status.ok() || pending_[i]->through()) {
        Settle(*pending_[i], status);
        pending_[i].reset();
      }
    }
    std::erase(pending_, nullptr);
    DropOverdue();
    HEARTH_RETURN_IF_ERROR(Accept());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Socket>> ConnectMesh(const MeshOptions& options,
                                                KeyValueStore& store,
                                                Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(Listener listener, Listen(options.host));
  MeshBuilder builder(options, clock, std::move(listener));
  // Addresses first, with the longer time limit: only when all have come does the short one of
  // connecting begin.
  HEARTH_RETURN_IF_ERROR(builder.Gather(store));
  HEARTH_RETURN_IF_ERROR(builder.Connect());
  return builder.TakeSockets();
}

}  // namespace hearth::trainer
