// `chat`: a conversation in the terminal, or a line a turn from a pipe.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_template.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/hf/hf_config.h"
#include "worker/trainer/cli/generate/generating_model.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/generate/chat_session.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kDefaultContext = 4096;
// Tokens of a pass over a beginning: the device computes all of them, however short it is.
constexpr int64_t kBeginningOnCpu = 64;
constexpr int64_t kBeginningOnGpu = 512;

// --chat-template: a name of the table, or a file; else what the folder has.
absl::StatusOr<chat::ChatTemplate> OpenTemplate(const ChatOptions& options) {
  if (options.chat_template.empty()) {
    absl::StatusOr<chat::ChatTemplate> found = chat::ChatTemplate::Open(options.checkpoint);
    if (absl::IsNotFound(found.status())) {
      return absl::NotFoundError(
          absl::StrCat(options.checkpoint,
                       " has no chat template; --chat-template names one, but "
                       "a model that was not trained on chats will not follow "
                       "it"));
    }
    return found;
  }
  for (const chat::NamedTemplate& row : chat::NamedTemplates()) {
    if (row.name == options.chat_template) {
      return chat::ChatTemplate::FromFiles(
          {{std::string(chat::kTemplateFileName), std::string(row.text)}}, options.chat_template);
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Env::Real().ReadFile(options.chat_template));
  std::map<std::string, std::string> files = {{std::string(chat::kTemplateFileName), text}};
  // Its special tokens belong to the tokenizer.
  const std::string config =
      absl::StrCat(options.checkpoint, "/", std::string(chat::kConfigFileName));
  if (Env::Real().Exists(config)) {
    HEARTH_ASSIGN_OR_RETURN(files[std::string(chat::kConfigFileName)],
                            Env::Real().ReadFile(config));
  }
  return chat::ChatTemplate::FromFiles(files, options.chat_template);
}

absl::Status CheckOptions(const ChatOptions& options) {
  if (options.tokens < 1 || options.context < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--tokens ", options.tokens, ", --context ",
                                                   options.context, ": must be at least 1"));
  }
  return kernels::CheckSamplingRule(options.rule);
}

GeneratingModelOptions ModelOptions(const ChatOptions& options,
                                    const v1::ModelSpec& model,
                                    int32_t end_token) {
  GeneratingModelOptions wanted;
  wanted.generator.model = model;
  const int64_t learned = model.max_position() > 0 ? model.max_position() : kDefaultContext;
  wanted.generator.length =
      options.context > 0 ? options.context : std::min(kDefaultContext, learned);
  wanted.generator.prompt = std::min(wanted.generator.length,
                                     options.device == "cpu" ? kBeginningOnCpu : kBeginningOnGpu);
  wanted.generator.rule = options.rule;
  wanted.generator.end_token = end_token;
  wanted.device = options.device;
  wanted.weights = options.weights;
  wanted.threads = options.threads;
  return wanted;
}

// One line is one message. A terminal gets a prompt, and goes on after an error.
absl::Status Talk(ChatSession& session, bool terminal) {
  const auto print = [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return std::fflush(stdout) == 0;
  };
  std::string line;
  while (print(terminal ? "> " : "") && std::getline(std::cin, line)) {
    if (line == "/quit") {
      break;
    }
    if (line == "/reset") {
      session.Reset();
      continue;
    }
    if (line.empty()) {
      continue;
    }
    const absl::Status status =
        line[0] == '/' ? absl::InvalidArgumentError(absl::StrCat(
                             line,
                             ": no such command; there are /reset and /quit, and a message "
                             "may begin with a blank"))
                       : session.Say(line, print).status();
    if (!status.ok() && !terminal) {
      return status;
    }
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    } else {
      print("\n");
    }
  }
  return absl::OkStatus();
}

absl::Status Chat(const ChatOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  const FolderChoice folder{options.checkpoint, options.choice};
  if (options.verify) {
    HEARTH_RETURN_IF_ERROR(VerifyFolder(folder));
  }
  HEARTH_ASSIGN_OR_RETURN(const chat::ChatTemplate chat_template, OpenTemplate(options));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(options.checkpoint));
  ChatSession::Options session;
  session.system = options.system;
  session.tokens = options.tokens;
  HEARTH_ASSIGN_OR_RETURN(session.end, FindAnswerEnd(chat_template, *tokenizer));
  HEARTH_ASSIGN_OR_RETURN(const v1::ModelSpec model,
                          hf::ReadHfConfig(options.checkpoint, Env::Real()));
  const int32_t end_token =
      session.end.tokens.empty() ? tokenizer->eos() : session.end.tokens.front();
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GeneratingModel> generating,
                          OpenFolderModel(ModelOptions(options, model, end_token), folder));
  ChatSession talk(*generating->generator, *tokenizer, chat_template, std::move(session));
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::fprintf(stderr, "%s, room for %ld tokens; /reset begins again, /quit ends\n",
                 options.checkpoint.c_str(),
                 static_cast<long>(generating->generator->plan_options().length));
  }
  return Talk(talk, terminal);
}

}  // namespace

int ChatCommand(const ChatOptions& options) {
  return ExitCodeOf(Chat(options));
}

}  // namespace hearth::trainer
