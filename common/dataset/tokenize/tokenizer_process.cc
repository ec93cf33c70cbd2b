#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/fault/fault.h"

extern char** environ;

namespace hearth::dataset {
namespace {

constexpr uint32_t kMaxFrame = 256u << 20;  // as in libexec/hearth-tokenizer/main.cc
constexpr size_t kTrainingChunk = size_t{1} << 20;

}  // namespace

// The child and our end of its stdin/stdout socket. Not thread-safe.
class TokenizerProcess::Pipe {
 public:
  static absl::StatusOr<std::unique_ptr<Pipe>> Start();

  ~Pipe() {
    if (fd_ >= 0) {
      close(fd_);
    }
    if (pid_ > 0) {
      kill(pid_, SIGKILL);  // it keeps nothing that could be lost
      Reap();
    }
  }

  absl::StatusOr<std::string> Call(char op, std::string_view payload) {
    HEARTH_RETURN_IF_ERROR(Send(op, payload));
    uint32_t size = 0;
    HEARTH_RETURN_IF_ERROR(Receive(&size, sizeof size));
    if (size == 0 || size > kMaxFrame) {
      return Gone("sent a malformed reply");
    }
    uint8_t code = 0;
    HEARTH_RETURN_IF_ERROR(Receive(&code, 1));
    std::string reply(size - 1, '\0');
    HEARTH_RETURN_IF_ERROR(Receive(reply.data(), reply.size()));
    if (code == 0) {
      return reply;
    }
    return absl::Status(static_cast<absl::StatusCode>(code), absl::StrCat("tokenizer: ", reply));
  }

  // MSG_NOSIGNAL: a dead child must be an error here, not a SIGPIPE.
  absl::Status Send(char op, std::string_view payload) {
    if (payload.size() >= kMaxFrame) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer: text of ", payload.size(), " bytes is too long"));
    }
    std::string head(sizeof(uint32_t) + 1, op);
    const uint32_t size = static_cast<uint32_t>(payload.size()) + 1;
    std::memcpy(head.data(), &size, sizeof size);
    HEARTH_RETURN_IF_ERROR(SendBytes(head));
    return SendBytes(payload);
  }

 private:
  absl::Status SendBytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        return Gone("ended");
      }
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

  absl::Status Receive(void* to, size_t n) {
    char* p = static_cast<char*>(to);
    while (n > 0) {
      const ssize_t got = recv(fd_, p, n, 0);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        return Gone("ended");
      }
      p += got;
      n -= static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

  absl::Status Gone(const char* what) const {
    return absl::UnavailableError(
        absl::StrCat("tokenizer process ", pid_, " (", program_, ") ", what));
  }

  void Reap() {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }

  std::string program_;
  int fd_ = -1;
  pid_t pid_ = -1;
};

absl::StatusOr<std::unique_ptr<TokenizerProcess::Pipe>> TokenizerProcess::Pipe::Start() {
  auto pipe = std::make_unique<Pipe>();
  HEARTH_ASSIGN_OR_RETURN(pipe->program_, FindTokenizerProgram());
  HEARTH_RETURN_IF_ERROR(fault::Check("dataset.before_spawn"));
  int ends[2];
  // Close-on-exec: another child that is started meanwhile must not inherit an end, or this one
  // would never see its input end.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(absl::StrCat("socketpair: ", ErrnoText(errno)));
  }
  pipe->fd_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string program = pipe->program_;
  char serve[] = "serve";
  char* argv[] = {program.data(), serve, nullptr};
  const int error = posix_spawn(&pipe->pid_, program.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  // Only the child may hold this end, or its death would not show here.
  close(ends[1]);
  if (error != 0) {
    pipe->pid_ = -1;
    return absl::InternalError(absl::StrCat(program, ": cannot start: ", ErrnoText(error)));
  }
  return pipe;
}

absl::StatusOr<std::string> FindTokenizerProgram() {
  std::string path;
  if (const char* folder = GetEnv("HEARTH_LIBEXEC"); folder != nullptr && *folder != '\0') {
    path = absl::StrCat(folder, "/hearth-tokenizer");
  } else {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    if (n <= 0) {
      return absl::InternalError("cannot read /proc/self/exe");
    }
    const std::string program(self, static_cast<size_t>(n));
    path =
        absl::StrCat(program.substr(0, program.find_last_of('/')), "/../libexec/hearth-tokenizer");
  }
  if (access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such program; HEARTH_LIBEXEC may name its folder"));
  }
  return path;
}

TokenizerProcess::TokenizerProcess(std::unique_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
TokenizerProcess::~TokenizerProcess() = default;

absl::StatusOr<std::unique_ptr<TokenizerProcess>> TokenizerProcess::Start(std::string_view model) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Pipe> pipe, Pipe::Start());
  HEARTH_ASSIGN_OR_RETURN(const std::string reply, pipe->Call('L', model));
  int32_t numbers[2];
  if (reply.size() != sizeof numbers) {
    return absl::InternalError("tokenizer: short reply");
  }
  std::memcpy(numbers, reply.data(), sizeof numbers);
  std::unique_ptr<TokenizerProcess> tokenizer(new TokenizerProcess(std::move(pipe)));
  tokenizer->vocab_ = numbers[0];
  tokenizer->eos_ = numbers[1];
  return tokenizer;
}

absl::StatusOr<std::string> TokenizerProcess::Train(const std::vector<std::string>& lines,
                                                    const SentencePieceTraining& options) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Pipe> pipe, Pipe::Start());
  std::string request(reinterpret_cast<const char*>(&options.vocab), sizeof options.vocab);
  request += options.model_type;
  HEARTH_RETURN_IF_ERROR(pipe->Call('B', request).status());
  std::string chunk;
  for (size_t i = 0; i < lines.size(); ++i) {
    chunk += lines[i];
    chunk += '\n';
    if (chunk.size() < kTrainingChunk && i + 1 < lines.size()) {
      continue;
    }
    // Not answered, so the chunks follow each other without waiting.
    HEARTH_RETURN_IF_ERROR(pipe->Send('S', chunk));
    chunk.clear();
  }
  absl::StatusOr<std::string> model = pipe->Call('T', "");
  if (!model.ok()) {
    return Annotate(model.status(), absl::StrCat("training a sentencepiece model of vocabulary ",
                                                 options.vocab, " on ", lines.size(), " lines"));
  }
  return model;
}

absl::StatusOr<std::vector<int32_t>> TokenizerProcess::Encode(std::string_view text) {
  absl::MutexLock lock(&mu_);
  HEARTH_ASSIGN_OR_RETURN(const std::string reply, pipe_->Call('E', text));
  std::vector<int32_t> tokens(reply.size() / sizeof(int32_t));
  if (!tokens.empty()) {  // else both may be null, which memcpy forbids
    std::memcpy(tokens.data(), reply.data(), tokens.size() * sizeof(int32_t));
  }
  return tokens;
}

absl::StatusOr<std::string> TokenizerProcess::Decode(absl::Span<const int32_t> tokens) {
  absl::MutexLock lock(&mu_);
  return pipe_->Call('D', std::string_view(reinterpret_cast<const char*>(tokens.data()),
                                           tokens.size() * sizeof(int32_t)));
}

TokenizerInfo TokenizerProcess::info() const {
  return {TokenizerKind::kSentencePiece, std::string(tokenizer::kSentencePieceFileName), vocab_,
          eos_};
}

}  // namespace hearth::dataset
