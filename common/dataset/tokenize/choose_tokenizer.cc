#include "common/dataset/tokenize/choose_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/tokenizer_file.h"
#include "common/tokenizer/tokenizer_kind.h"
#include "common/tokenizer/train.h"

namespace hearth::dataset {
namespace {

using Kind = TokenizerChoice::Kind;

constexpr size_t kMaxTrainingLine = 4096;
constexpr int32_t kMaxVocab = 1 << 20;

// How much text a training reads. sentencepiece keeps all of it in memory, BPE only its words.
constexpr int64_t kSentencePieceBytes = int64_t{4} << 20;
constexpr int64_t kBpeBytes = int64_t{256} << 20;

struct TrainedForm {
  std::string_view prefix;
  Kind kind;
  int32_t min_vocab;
};
constexpr TrainedForm kTrainedForms[] = {
    {"sentencepiece:", Kind::kTrainSentencePiece, 300},
    {"bpe:", Kind::kTrainBpe, 257},
};

absl::StatusOr<std::string> TrainSentencePiece(int32_t vocab, const TrainingTexts& texts) {
  std::vector<std::string> lines;
  const auto nothing = [](std::string_view) {};
  HEARTH_RETURN_IF_ERROR(texts.for_each(kSentencePieceBytes, nothing, [&](std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (end > at && end - at <= kMaxTrainingLine) {
        lines.emplace_back(text.substr(at, end - at));
      }
      at = end + 1;
    }
  }));
  SentencePieceTraining training;
  training.vocab = vocab;
  return TokenizerProcess::Train(lines, training);
}

absl::Status UseModel(const std::string& model, ChosenTokenizer* chosen) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<TokenizerProcess> process,
                          TokenizerProcess::Start(model));
  chosen->files[process->info().file] = model;
  chosen->tokenizer = std::move(process);
  return absl::OkStatus();
}

// Thread-safe: each thread that adds takes some counts for itself and gives them back.
class CountsOfThreads {
 public:
  void Add(std::string_view text) {
    std::unique_ptr<tokenizer::PieceCounts> counts;
    {
      const absl::MutexLock lock(&mu_);
      if (!idle_.empty()) {
        counts = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (counts == nullptr) {
      counts = std::make_unique<tokenizer::PieceCounts>();
    }
    counts->Add(text);
    const absl::MutexLock lock(&mu_);
    idle_.push_back(std::move(counts));
  }

  // Call it once, when no thread adds any more: it empties the counts.
  tokenizer::PieceCounts Sum() {
    const absl::MutexLock lock(&mu_);
    tokenizer::PieceCounts sum;
    for (std::unique_ptr<tokenizer::PieceCounts>& counts : idle_) {
      sum.Add(*counts);
      counts.reset();
    }
    idle_.clear();
    return sum;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::unique_ptr<tokenizer::PieceCounts>> idle_ ABSL_GUARDED_BY(mu_);
};

absl::Status TrainBpe(int32_t vocab, const TrainingTexts& texts, ChosenTokenizer* chosen) {
  CountsOfThreads counts_of_threads;
  const auto nothing = [](std::string_view) {};
  HEARTH_RETURN_IF_ERROR(texts.for_each(
      kBpeBytes, [&](std::string_view text) { counts_of_threads.Add(text); }, nothing));
  const tokenizer::PieceCounts counts = counts_of_threads.Sum();
  HEARTH_ASSIGN_OR_RETURN(const std::string json, tokenizer::TrainBpe(counts, vocab));
  HEARTH_ASSIGN_OR_RETURN(chosen->tokenizer,
                          NewBpeTokenizer(json, tokenizer::kBpeFileName, vocab - 1));
  chosen->files[std::string(tokenizer::kBpeFileName)] = json;
  chosen->files[std::string(kTokenizerConfigName)] = tokenizer::TrainedTokenizerConfig();
  return absl::OkStatus();
}

// The path of `name` beside a file.
std::string CompanionOf(const std::string& path, std::string_view name) {
  return absl::StrCat(path.substr(0, path.find_last_of('/') + 1), std::string(name));
}

absl::Status TakeCompanions(const std::string& path, Env& env, ChosenTokenizer* chosen) {
  for (const std::string_view name : kCompanionNames) {
    const std::string companion = CompanionOf(path, name);
    if (env.Exists(companion)) {
      HEARTH_ASSIGN_OR_RETURN(chosen->files[std::string(name)], env.ReadFile(companion));
    }
  }
  return absl::OkStatus();
}

// The eos_token of the tokenizer_config.json beside a file; empty: it names none, or is not there.
absl::StatusOr<std::string> EndTokenBeside(const std::string& path, Env& env) {
  const std::string config = CompanionOf(path, kTokenizerConfigName);
  if (!env.Exists(config)) {
    return std::string();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(config));
  return tokenizer::ConfigToken(text, "eos_token", config);
}

absl::Status UseJson(const std::string& path,
                     std::string_view end_token,
                     Env& env,
                     ChosenTokenizer* chosen) {
  HEARTH_ASSIGN_OR_RETURN(const std::string json, env.ReadFile(path));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizer::BpeTokenizer> parsed,
                          tokenizer::BpeTokenizer::Parse(json, path));
  HEARTH_RETURN_IF_ERROR(TakeCompanions(path, env, chosen));
  std::string end(end_token);
  if (end.empty()) {
    HEARTH_ASSIGN_OR_RETURN(end, EndTokenBeside(path, env));
  }
  if (end.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no eos_token in ", CompanionOf(path, kTokenizerConfigName),
                     "; --end-token says which token ends a document"));
  }
  const int32_t eos = parsed->IdOf(end);
  if (eos < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the end token \"", end, "\" is not one of its added_tokens"));
  }
  HEARTH_ASSIGN_OR_RETURN(chosen->tokenizer, NewBpeTokenizer(json, path, eos));
  chosen->files[std::string(tokenizer::kBpeFileName)] = json;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenHuggingFaceJson(const std::string& path, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::string json, env.ReadFile(path));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizer::BpeTokenizer> parsed,
                          tokenizer::BpeTokenizer::Parse(json, path));
  HEARTH_ASSIGN_OR_RETURN(const std::string end, EndTokenBeside(path, env));
  return NewBpeTokenizer(json, path, end.empty() ? -1 : parsed->IdOf(end));
}

}  // namespace

absl::StatusOr<TokenizerChoice> ParseTokenizerChoice(std::string_view text, Env& env) {
  const std::string name(text);
  if (text == tokenizer::NameOf(TokenizerKind::kBytes)) {
    return TokenizerChoice{};
  }
  for (const TrainedForm& form : kTrainedForms) {
    if (!text.starts_with(form.prefix)) {
      continue;
    }
    const std::string number = name.substr(form.prefix.size());
    int32_t vocab = 0;
    if (!absl::SimpleAtoi(number, &vocab) || vocab < form.min_vocab || vocab > kMaxVocab) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--tokenizer: ", name, ": the vocabulary must be ", form.min_vocab, "..", kMaxVocab));
    }
    return TokenizerChoice{form.kind, vocab, ""};
  }
  if (text.ends_with(".model")) {
    return TokenizerChoice{Kind::kModelFile, 0, name};
  }
  if (text.ends_with(".json")) {
    return TokenizerChoice{Kind::kJsonFile, 0, name};
  }
  if (env.IsDirectory(name)) {
    return TokenizerChoice{Kind::kJsonFile, 0,
                           absl::StrCat(name, "/", std::string(tokenizer::kBpeFileName))};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--tokenizer: \"", name,
                   "\" is not one of bytes, sentencepiece:VOCAB, bpe:VOCAB, FILE.model, FILE.json "
                   "or a folder with tokenizer.json"));
}

absl::StatusOr<ChosenTokenizer> ChooseTokenizer(const TokenizerChoice& choice,
                                                std::string_view end_token,
                                                const TrainingTexts& texts,
                                                Env& env) {
  ChosenTokenizer chosen;
  if (!end_token.empty() && choice.kind != Kind::kJsonFile) {
    return absl::InvalidArgumentError("--end-token: only a given tokenizer.json needs it");
  }
  switch (choice.kind) {
    case Kind::kBytes:
      chosen.tokenizer = NewBytesTokenizer();
      break;
    case Kind::kTrainSentencePiece: {
      HEARTH_ASSIGN_OR_RETURN(const std::string model, TrainSentencePiece(choice.vocab, texts));
      HEARTH_RETURN_IF_ERROR(UseModel(model, &chosen));
      break;
    }
    case Kind::kTrainBpe:
      HEARTH_RETURN_IF_ERROR(TrainBpe(choice.vocab, texts, &chosen));
      break;
    case Kind::kModelFile: {
      HEARTH_ASSIGN_OR_RETURN(const std::string model, env.ReadFile(choice.file));
      HEARTH_RETURN_IF_ERROR(UseModel(model, &chosen));
      HEARTH_RETURN_IF_ERROR(TakeCompanions(choice.file, env, &chosen));
      break;
    }
    case Kind::kJsonFile:
      HEARTH_RETURN_IF_ERROR(UseJson(choice.file, end_token, env, &chosen));
      break;
  }
  return chosen;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizerIn(const std::string& dir, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<TokenizerInfo> info, RecordedTokenizer(dir, env));
  if (info.has_value()) {
    return OpenTokenizer(*info, dir, env);
  }
  const std::string json = absl::StrCat(dir, "/", std::string(tokenizer::kBpeFileName));
  const std::string model =
      absl::StrCat(dir, "/", std::string(tokenizer::RowOf(TokenizerKind::kSentencePiece).file));
  if (env.Exists(json)) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> bpe = OpenHuggingFaceJson(json, env);
    // One of another kind often stands beside the model that it was made of.
    if (bpe.ok() || !env.Exists(model)) {
      return bpe;
    }
  }
  if (!env.Exists(model)) {
    return absl::FailedPreconditionError(absl::StrCat(dir, ": no tokenizer (",
                                                      std::string(kTokenizerFileName),
                                                      ", tokenizer.json or tokenizer.model)"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, env.ReadFile(model));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<TokenizerProcess> process,
                          TokenizerProcess::Start(bytes));
  return process;
}

}  // namespace hearth::dataset
