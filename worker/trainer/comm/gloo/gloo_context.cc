#include "worker/trainer/comm/gloo/gloo_context.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "gloo/common/error.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/unbound_buffer.h"

namespace hearth::trainer {
namespace {

class GangBuffer;

[[noreturn]] void Throw(const std::string& text) {
  // tidy: allow(banned): Gloo's interface knows no other failures; GlooCollective catches them
  throw ::gloo::IoException(text);
}

[[noreturn]] void NotUsed(const char* what) {
  Throw(absl::StrCat("Gloo's ", what, " is not used by its collectives"));
}

// In front of each message's bytes. Both in the machine's order, which is the same on all.
struct Header {
  uint64_t slot = 0;
  uint64_t bytes = 0;
};

// A message on its way out, or one that this rank waits for.
struct Message {
  GangBuffer* buffer = nullptr;  // told when it is done
  Header header;
  char* data = nullptr;
  size_t done = 0;  // bytes of header and data
};

// The connection to one rank.
class Peer : public gloo::transport::Pair {
 public:
  Peer(int rank, Socket socket) : rank_(rank), socket_(std::move(socket)) {
    name_ = absl::StrCat("rank ", rank_, " (", PeerName(socket_), ")");
    // A collective waits for each small message: none may be held back to be sent with the next.
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void send(gloo::transport::UnboundBuffer* buffer,
            uint64_t slot,
            size_t offset,
            size_t bytes) override;
  void recv(gloo::transport::UnboundBuffer* buffer,
            uint64_t slot,
            size_t offset,
            size_t bytes) override;

  // As much as goes without waiting.
  void Flush();
  void Fill();
  // For poll; 0 = it waits for nothing.
  int16_t events() const {
    return static_cast<int16_t>((out_.empty() ? 0 : POLLOUT) | (in_.empty() ? 0 : POLLIN));
  }
  int fd() const { return socket_.get(); }
  const std::string& name() const { return name_; }
  // Messages of that buffer, which ends before them after a failure.
  void Forget(const GangBuffer* buffer);

  const gloo::transport::Address& address() const override { NotUsed("address"); }
  void connect(const std::vector<char>&) override { NotUsed("connect"); }
  void close() override { socket_ = Socket(); }
  void setSync(bool, bool) override { NotUsed("setSync"); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override {
    NotUsed("createSendBuffer");
  }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override {
    NotUsed("createRecvBuffer");
  }

 private:
  const int rank_;
  Socket socket_;
  std::string name_;
  std::deque<Message> out_;
  std::deque<Message> in_;  // in the order in which the peer sends them
  Header arriving_;         // of in_.front(), as far as it is there
};

class GangTransport : public gloo::transport::Context {
 public:
  GangTransport(int own_rank, std::vector<Socket> sockets, Clock& clock)
      : gloo::transport::Context(own_rank, static_cast<int>(sockets.size())), clock_(clock) {
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (static_cast<int>(i) != own_rank) {
        auto peer = std::make_unique<Peer>(static_cast<int>(i), std::move(sockets[i]));
        peers_.push_back(peer.get());
        pairs_[i] = std::move(peer);
      }
    }
    polled_.reserve(peers_.size());
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int) override { NotUsed("createPair"); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      size_t bytes) override;

  // Moves bytes until done() holds.
  template <typename Done>
  void Drive(const Done& done, std::chrono::milliseconds timeout, const char* what);
  void Forget(const GangBuffer* buffer) {
    for (Peer* peer : peers_) {
      peer->Forget(buffer);
    }
  }

 private:
  void Wait(absl::Duration left);

  Clock& clock_;
  std::vector<Peer*> peers_;  // of pairs_
  std::vector<pollfd> polled_;
};

class GangBuffer : public gloo::transport::UnboundBuffer {
 public:
  GangBuffer(GangTransport& transport, void* memory, size_t bytes)
      : gloo::transport::UnboundBuffer(memory, bytes), transport_(transport) {}
  ~GangBuffer() override { transport_.Forget(this); }

  void send(int to, uint64_t slot, size_t offset, size_t bytes) override {
    transport_.getPair(to)->send(this, slot, offset, Whole(offset, bytes));
  }
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override {
    transport_.getPair(from)->recv(this, slot, offset, Whole(offset, bytes));
  }
  void recv(std::vector<int>, uint64_t, size_t, size_t) override { NotUsed("recv from any rank"); }

  bool waitSend(int* to, std::chrono::milliseconds timeout) override {
    return WaitFor(sent_, to, timeout, "send");
  }
  bool waitRecv(int* from, std::chrono::milliseconds timeout) override {
    return WaitFor(received_, from, timeout, "receive");
  }
  void abortWaitSend() override { NotUsed("abortWaitSend"); }
  void abortWaitRecv() override { NotUsed("abortWaitRecv"); }

  void Sent(int to) { sent_.push_back(to); }
  void Received(int from) { received_.push_back(from); }

 private:
  size_t Whole(size_t offset, size_t bytes) const {
    if (offset > size || (bytes != kUnspecifiedByteCount && bytes > size - offset)) {
      Throw("an operation beyond its buffer");
    }
    return bytes == kUnspecifiedByteCount ? size - offset : bytes;
  }
  bool WaitFor(std::deque<int>& done,
               int* rank,
               std::chrono::milliseconds timeout,
               const char* what) {
    transport_.Drive([&done] { return !done.empty(); }, timeout, what);
    if (rank != nullptr) {
      *rank = done.front();
    }
    done.pop_front();
    return true;
  }

  GangTransport& transport_;
  std::deque<int> sent_;  // ranks, one for each message that nobody has waited for yet
  std::deque<int> received_;
};

Message MessageOf(gloo::transport::UnboundBuffer* buffer,
                  uint64_t slot,
                  size_t offset,
                  size_t bytes) {
  return {
      static_cast<GangBuffer*>(buffer), {slot, bytes}, static_cast<char*>(buffer->ptr) + offset};
}

void Peer::send(gloo::transport::UnboundBuffer* buffer,
                uint64_t slot,
                size_t offset,
                size_t bytes) {
  // Sent at once as far as the socket takes it: the peer may already wait. The rest goes in Drive.
  out_.push_back(MessageOf(buffer, slot, offset, bytes));
  Flush();
}

void Peer::recv(gloo::transport::UnboundBuffer* buffer,
                uint64_t slot,
                size_t offset,
                size_t bytes) {
  // Nothing is read yet: it takes its place in the order, and Drive reads.
  in_.push_back(MessageOf(buffer, slot, offset, bytes));
}

void Peer::Flush() {
  while (!out_.empty()) {
    Message& message = out_.front();
    iovec parts[2];
    size_t count = 0;
    if (message.done < sizeof(Header)) {
      parts[count++] = {reinterpret_cast<char*>(&message.header) + message.done,
                        sizeof(Header) - message.done};
    }
    // `done` counts header and data as one stream, so that a call which ends in the middle of
    // either goes on there.
    const size_t of_data = message.done - std::min(message.done, sizeof(Header));
    if (of_data < message.header.bytes) {
      parts[count++] = {message.data + of_data, message.header.bytes - of_data};
    }
    msghdr call = {};
    call.msg_iov = parts;
    call.msg_iovlen = count;
    const ssize_t put = sendmsg(socket_.get(), &call, MSG_NOSIGNAL);
    if (put < 0) {
      if (errno == EINTR) {
        continue;
      }
      // The socket is full: Drive reads meanwhile, or two ranks that send to each other would wait
      // for ever.
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }
      Throw(absl::StrCat("sending to ", name_, ": ", ErrnoText(errno)));
    }
    message.done += static_cast<size_t>(put);
    if (message.done == sizeof(Header) + message.header.bytes) {
      message.buffer->Sent(rank_);
      out_.pop_front();
    }
  }
}

void Peer::Fill() {
  while (!in_.empty()) {
    Message& message = in_.front();
    const bool in_header = message.done < sizeof(Header);
    if (!in_header && message.done == sizeof(Header) + message.header.bytes) {
      message.buffer->Received(rank_);
      in_.pop_front();
      continue;
    }
    // Data goes straight to where the operation wants it; the header tells first whether it is the
    // one that is waited for.
    char* to = in_header ? reinterpret_cast<char*>(&arriving_) + message.done
                         : message.data + (message.done - sizeof(Header));
    const size_t most =
        (in_header ? sizeof(Header) : sizeof(Header) + message.header.bytes) - message.done;
    const ssize_t got = ::recv(socket_.get(), to, most, 0);
    if (got == 0) {
      Throw(absl::StrCat(name_, " closed its connection"));
    }
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }
      Throw(absl::StrCat("receiving from ", name_, ": ", ErrnoText(errno)));
    }
    message.done += static_cast<size_t>(got);
    if (in_header && message.done == sizeof(Header) &&
        (arriving_.slot != message.header.slot || arriving_.bytes != message.header.bytes)) {
      Throw(absl::StrCat("the ranks call different operations: ", name_, " sends ", arriving_.bytes,
                         " bytes of ", arriving_.slot, ", this rank waits for ",
                         message.header.bytes, " bytes of ", message.header.slot));
    }
  }
}

void Peer::Forget(const GangBuffer* buffer) {
  const auto is_its = [buffer](const Message& message) { return message.buffer == buffer; };
  std::erase_if(out_, is_its);
  std::erase_if(in_, is_its);
}

std::unique_ptr<gloo::transport::UnboundBuffer> GangTransport::createUnboundBuffer(void* ptr,
                                                                                   size_t bytes) {
  return std::make_unique<GangBuffer>(*this, ptr, bytes);
}

template <typename Done>
void GangTransport::Drive(const Done& done, std::chrono::milliseconds timeout, const char* what) {
  if (timeout == gloo::transport::kUnsetTimeout) {
    timeout = getTimeout();
  }
  const bool for_ever = timeout == gloo::kNoTimeout;
  const absl::Duration deadline =
      for_ever ? absl::InfiniteDuration() : clock_.Monotonic() + absl::FromChrono(timeout);
  while (!done()) {
    // All peers in turn, whomever this operation waits for: what others send must not fill their
    // sockets.
    for (Peer* peer : peers_) {
      peer->Flush();
      peer->Fill();
    }
    if (done()) {
      return;
    }
    const absl::Duration left = deadline - clock_.Monotonic();
    if (left <= absl::ZeroDuration()) {
      std::string waits_for;
      for (const Peer* peer : peers_) {
        if (peer->events() != 0) {
          absl::StrAppend(&waits_for, waits_for.empty() ? "" : ", ", peer->name());
        }
      }
      Throw(absl::StrCat("timed out after ", timeout.count(), " ms waiting to ", what, "; ",
                         waits_for, " did not take part"));
    }
    Wait(left);
  }
}

void GangTransport::Wait(absl::Duration left) {
  polled_.clear();
  for (const Peer* peer : peers_) {
    if (peer->events() != 0) {
      polled_.push_back({peer->fd(), peer->events(), 0});
    }
  }
  constexpr absl::Duration kLongest = absl::Minutes(1);
  const int64_t milliseconds = absl::ToInt64Milliseconds(std::min(left, kLongest)) + 1;
  if (poll(polled_.data(), polled_.size(), static_cast<int>(milliseconds)) < 0 && errno != EINTR) {
    Throw(absl::StrCat("poll: ", ErrnoText(errno)));
  }
}

class GangContext : public gloo::Context {
 public:
  GangContext(int own_rank, int world_size, std::shared_ptr<GangTransport> transport)
      : gloo::Context(own_rank, world_size) {
    transportContext_ = std::move(transport);
  }
};

}  // namespace

std::shared_ptr<gloo::Context> NewGlooContext(int rank,
                                              std::vector<Socket> sockets,
                                              absl::Duration timeout,
                                              Clock& clock) {
  const int size = static_cast<int>(sockets.size());
  auto transport = std::make_shared<GangTransport>(rank, std::move(sockets), clock);
  const auto milliseconds = absl::ToChronoMilliseconds(std::max(timeout, absl::Milliseconds(1)));
  // Both: the transport's is for single waits, the context's is what collectives pass on.
  transport->setTimeout(milliseconds);
  auto context = std::make_shared<GangContext>(rank, size, std::move(transport));
  context->setTimeout(milliseconds);
  return context;
}

}  // namespace hearth::trainer
