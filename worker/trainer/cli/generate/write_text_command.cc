// `write-text`: what hearth-worker starts to have a checkpoint's model write one text.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/hf/hf_config.h"
#include "common/io/message_frame.h"
#include "common/io/rooted_env.h"
#include "common/spec/model/position_limit.h"
#include "hearth/v1/agent.pb.h"
#include "worker/trainer/cli/generate/generating_model.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/generate/growing_text.h"
#include "worker/trainer/generate/text_request.h"
#include "worker/trainer/link/link.h"

namespace hearth::trainer {
namespace {

// The worker's end of the pipe; blocking.
class WorkerPipe {
 public:
  static absl::StatusOr<WorkerPipe> Open() {
    HEARTH_ASSIGN_OR_RETURN(const int fd, InheritedFd());
    if (fd < 0) {
      return absl::FailedPreconditionError(
          "write-text is started by hearth-worker; without it, use: hearth-trainer sample");
    }
    return WorkerPipe(fd);
  }

  absl::StatusOr<v1::WriteText> Read() {
    FrameReader reader;
    v1::WriteText request;
    char buffer[4096];
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool whole, reader.Next(request));
      if (whole) {
        return request;
      }
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got == 0 || (got < 0 && errno != EINTR)) {
        return absl::UnavailableError("the worker has gone");
      }
      reader.Append({buffer, static_cast<size_t>(std::max<ssize_t>(got, 0))});
    }
  }

  // UNAVAILABLE: the worker has gone. Otherwise what is wrong with the message; nothing was sent.
  absl::Status Send(const v1::WrittenText& answer) {
    std::string frame;
    HEARTH_RETURN_IF_ERROR(AppendFrame(answer, frame));
    for (size_t sent = 0; sent < frame.size();) {
      const ssize_t now = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (now < 0 && errno != EINTR) {
        return absl::UnavailableError("the worker has gone");
      }
      sent += static_cast<size_t>(std::max<ssize_t>(now, 0));
    }
    return absl::OkStatus();
  }

 private:
  explicit WorkerPipe(int fd) : fd_(fd) {}
  int fd_;
};

absl::StatusOr<v1::TextEnd> Write(const WriteTextOptions& options,
                                  const v1::WriteText& request,
                                  WorkerPipe& pipe) {
  const v1::TextRequest& text = request.text();
  const kernels::SamplingRule rule = RuleOf(text);
  HEARTH_RETURN_IF_ERROR(kernels::CheckSamplingRule(rule));
  if (std::any_of(text.stop().begin(), text.stop().end(),
                  [](const std::string& stop) { return stop.empty(); })) {
    return absl::InvalidArgumentError("stop: an empty text would stop at once");
  }
  RootedEnv env(Env::Real(), FileRoots{{options.checkpoint_root}, {}, "this worker"});
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(request.path(), env));
  GeneratingModelOptions wanted;
  HEARTH_ASSIGN_OR_RETURN(wanted.generator.model, hf::ReadHfConfig(request.path(), env));
  const v1::ModelSpec& model = wanted.generator.model;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                          EncodePrompt(text.prompt(), *tokenizer, model));
  StreamOptions writing;
  writing.tokens = TokensOf(text);
  writing.stops.assign(text.stop().begin(), text.stop().end());
  wanted.generator.prompt = static_cast<int64_t>(tokens.size());
  wanted.generator.length = spec::WithinPositions(model, wanted.generator.prompt + writing.tokens);
  wanted.generator.rule = rule;
  wanted.generator.end_token = tokenizer->eos();
  wanted.device = options.device;
  wanted.threads = options.threads;
  FolderChoice folder;
  folder.folder = request.path();
  folder.choice = text.ema() ? weights::WeightChoice::kEma : weights::WeightChoice::kStep;
  folder.env = &env;
  // Nothing is verified: the first words should come soon.
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GeneratingModel> generating,
                          OpenFolderModel(wanted, folder));
  GrowingText growing(*generating->generator);
  absl::Status sent;
  HEARTH_ASSIGN_OR_RETURN(
      const StreamedText written,
      StreamText(growing, *tokenizer, tokens, writing, [&](std::string_view piece) {
        v1::WrittenText answer;
        answer.set_text(Characters(piece));
        sent = pipe.Send(answer);
        return sent.ok();
      }));
  HEARTH_RETURN_IF_ERROR(sent);
  return EndOf(written.end);
}

absl::Status Serve(const WriteTextOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(WorkerPipe pipe, WorkerPipe::Open());
  HEARTH_ASSIGN_OR_RETURN(const v1::WriteText request, pipe.Read());
  const absl::StatusOr<v1::TextEnd> end = Write(options, request, pipe);
  v1::WrittenText last;
  if (end.ok()) {
    last.set_end(*end);
  } else {
    last.set_code(static_cast<int32_t>(end.status().code()));
    last.set_error(Characters(std::string(end.status().message())));
  }
  return pipe.Send(last);
}

}  // namespace

int WriteTextCommand(const WriteTextOptions& options) {
  return ExitCodeOf(Serve(options));
}

}  // namespace hearth::trainer
