#include "common/dataset/build.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/dataset/choose_tokenizer.h"
#include "common/dataset/corpus.h"
#include "common/dataset/dataset_writer.h"
#include "common/dataset/tokenizer.h"
#include "common/io/sha256.h"

namespace hearth::dataset {
namespace {

// First 8 bytes of the SHA-256: uniform, and the same everywhere.
uint64_t Hash64(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  const auto digest = hash.Finish();
  uint64_t value;
  std::memcpy(&value, digest.data(), sizeof value);
  return value;
}

void Say(const BuildOptions& options, const std::string& line) {
  if (options.progress) {
    options.progress(line);
  }
}

absl::Status CheckOptions(const BuildOptions& options) {
  if (options.inputs.empty()) {
    return absl::InvalidArgumentError("--input: no path given");
  }
  if (options.out.empty()) {
    return absl::InvalidArgumentError("--out: no folder given");
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--validation-fraction: is ", options.validation_fraction, ", must be in [0, 1)"));
  }
  return absl::OkStatus();
}

bool IsValidation(std::string_view text, double fraction) {
  // 2^53 keeps the comparison exact in double.
  return static_cast<double>(Hash64(text) >> 11) < fraction * 9007199254740992.0;
}

// Gives `take` the beginning of each document of the training part, up to its share of `wanted`
// bytes, in whole lines.
absl::Status ForTrainingTexts(const BuildOptions& options,
                              Corpus& corpus,
                              int64_t corpus_bytes,
                              int64_t wanted,
                              const std::function<void(std::string_view)>& take) {
  const double share =
      std::min(1.0, static_cast<double>(wanted) / static_cast<double>(corpus_bytes));
  return corpus.ForEach([&](const Corpus::Document& document) {
    const std::string& text = document.text;
    if (!IsValidation(text, options.validation_fraction)) {
      const size_t budget = static_cast<size_t>(share * static_cast<double>(text.size())) + 1;
      const size_t end = budget < text.size() ? text.find('\n', budget - 1) : std::string::npos;
      take(std::string_view(text).substr(0, end));
    }
    return absl::OkStatus();
  });
}

// One dataset at `out`, or two in it. The two are built in a folder that this run makes: beside
// `out` if that does not exist (the folder is renamed to `out` when both are whole), else inside
// `out` (which may be a mount point or a link). Nothing else is ever removed.
class Splits {
 public:
  explicit Splits(Env& env) : env_(env) {}
  ~Splits() {
    writers_.clear();
    if (!staging_.empty()) {
      env_.RemoveAll(staging_).IgnoreError();
    }
  }

  absl::Status Create(const BuildOptions& options, const ChosenTokenizer& chosen) {
    fraction_ = options.validation_fraction;
    out_ = options.out;
    std::string name = options.name;
    if (name.empty()) {
      name = options.out.substr(options.out.find_last_of('/') + 1);
    }
    const bool both = options.validation_fraction > 0;
    if (both) {
      out_exists_ = env_.Exists(options.out);
      staging_ = absl::StrCat(options.out, out_exists_ ? "/" : "", ".tmp-", RandomHex(4));
    }
    for (const char* split : {"train", "validation"}) {
      DatasetWriter::Options writer;
      writer.info.name = name;
      writer.info.split = both ? split : "all";
      writer.info.tokenizer = chosen.tokenizer->info();
      writer.info.vocab = chosen.tokenizer->vocab();
      writer.info.eos = chosen.tokenizer->eos();
      writer.tokenizer_files = chosen.files;
      writer.shard_tokens = options.shard_tokens;
      paths_.push_back(both ? absl::StrCat(options.out, "/", split) : options.out);
      HEARTH_ASSIGN_OR_RETURN(
          std::unique_ptr<DatasetWriter> created,
          DatasetWriter::Create(both ? absl::StrCat(staging_, "/", split) : options.out,
                                std::move(writer), env_));
      writers_.push_back(std::move(created));
      if (!both) {
        break;
      }
    }
    return absl::OkStatus();
  }

  DatasetWriter& For(std::string_view text) {
    return *writers_[writers_.size() > 1 && IsValidation(text, fraction_) ? 1 : 0];
  }

  absl::Status Finish(std::vector<BuildReport::Output>& outputs) {
    for (size_t i = 0; i < writers_.size(); ++i) {
      absl::StatusOr<DatasetInfo> info = writers_[i]->Finish();
      if (absl::IsInvalidArgument(info.status())) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--validation-fraction: no document fell to ", paths_[i], "; give more text"));
      }
      HEARTH_RETURN_IF_ERROR(info.status());
      outputs.push_back({paths_[i], *std::move(info)});
    }
    if (staging_.empty()) {
      return absl::OkStatus();
    }
    if (out_exists_) {
      return MoveBothIntoOut();
    }
    HEARTH_RETURN_IF_ERROR(env_.Rename(staging_, out_));
    staging_.clear();
    const size_t slash = out_.find_last_of('/');
    return env_.SyncDir(slash == std::string::npos ? "."
                        : slash == 0               ? "/"
                                                   : out_.substr(0, slash));
  }

 private:
  absl::Status MoveBothIntoOut() {
    for (const char* split : {"train", "validation"}) {
      HEARTH_RETURN_IF_ERROR(
          env_.Rename(absl::StrCat(staging_, "/", split), absl::StrCat(out_, "/", split)));
    }
    return env_.SyncDir(out_);
  }

  Env& env_;
  double fraction_ = 0;
  std::string out_;
  bool out_exists_ = false;
  std::string staging_;  // empty: one dataset, or it has its name
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<DatasetWriter>> writers_;
};

// Encodes documents in batches, a share of each batch a thread, and writes them in their order.
class Encoder {
 public:
  Encoder(Tokenizer& tokenizer, int threads, Splits& splits)
      : tokenizer_(tokenizer),
        threads_(threads > 0 ? static_cast<size_t>(threads)
                             : std::max(1u, std::thread::hardware_concurrency())),
        splits_(splits) {}

  absl::Status Add(Corpus::Document document) {
    bytes_ += document.text.size();
    batch_.push_back(std::move(document));
    return bytes_ >= kBatchBytes ? Flush() : absl::OkStatus();
  }

  absl::Status Flush() {
    using Tokens = absl::StatusOr<std::vector<int32_t>>;
    std::vector<Tokens> tokens(batch_.size(), Tokens(absl::UnknownError("not encoded")));
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < batch_.size(); i = next++) {
        tokens[i] = tokenizer_.Encode(batch_[i].text);
      }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(threads_, batch_.size()); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (!tokens[i].ok()) {
        return Annotate(tokens[i].status(), batch_[i].where);
      }
      HEARTH_RETURN_IF_ERROR(splits_.For(batch_[i].text).AddDocument(*tokens[i]));
    }
    batch_.clear();
    bytes_ = 0;
    return absl::OkStatus();
  }

 private:
  // Bytes of text in a batch; its tokens take four bytes each, one or fewer a byte.
  static constexpr size_t kBatchBytes = size_t{8} << 20;

  Tokenizer& tokenizer_;
  const size_t threads_;
  Splits& splits_;
  std::vector<Corpus::Document> batch_;
  size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<BuildReport> Build(const BuildOptions& given, Env& env) {
  BuildOptions options = given;
  while (options.out.size() > 1 && options.out.back() == '/') {
    options.out.pop_back();
  }
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  HEARTH_ASSIGN_OR_RETURN(const TokenizerChoice choice,
                          ParseTokenizerChoice(options.tokenizer, env));
  if (env.Exists(options.out)) {
    if (!env.IsDirectory(options.out)) {
      return absl::AlreadyExistsError(absl::StrCat(options.out, ": exists"));
    }
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.ListDir(options.out));
    if (!names.empty()) {
      return absl::AlreadyExistsError(absl::StrCat(options.out, ": exists and is not empty"));
    }
  }
  BuildReport report;
  Corpus corpus(options, env, report);
  HEARTH_RETURN_IF_ERROR(corpus.Collect());
  Say(options, absl::StrCat(report.files, " text files, ", report.bytes, " bytes"));
  absl::StatusOr<ChosenTokenizer> chosen = ChooseTokenizer(
      choice, options.end_token,
      [&](int64_t wanted, const std::function<void(std::string_view)>& take) {
        Say(options, absl::StrCat("training ", options.tokenizer));
        return ForTrainingTexts(options, corpus, report.bytes, wanted, take);
      },
      env);
  if (!chosen.ok()) {
    return Annotate(chosen.status(), absl::StrCat("--tokenizer: ", options.tokenizer));
  }
  Splits splits(env);
  HEARTH_RETURN_IF_ERROR(splits.Create(options, *chosen));
  Encoder encoder(*chosen->tokenizer, options.threads, splits);
  HEARTH_RETURN_IF_ERROR(corpus.ForEach(
      [&encoder](Corpus::Document document) { return encoder.Add(std::move(document)); }));
  HEARTH_RETURN_IF_ERROR(encoder.Flush());
  HEARTH_RETURN_IF_ERROR(splits.Finish(report.outputs));
  return report;
}

std::string ToText(const BuildReport& report) {
  std::string text = absl::StrCat(
      "files       ", report.files, " (", report.bytes, " bytes)\nskipped     ", report.binary,
      " not text, ", report.duplicates, " duplicates, ", report.oversized,
      " too large or over the cap, ", report.empty, " empty, ", report.unreadable, " unreadable\n");
  for (const BuildReport::Output& output : report.outputs) {
    absl::StrAppend(&text, "dataset     ", output.path, ": ", output.info.tokens, " tokens, ",
                    output.info.documents, " documents, vocabulary ", output.info.vocab, " (",
                    output.info.tokenizer.kind, ")\n");
  }
  return text;
}

}  // namespace hearth::dataset
