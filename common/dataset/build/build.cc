#include "common/dataset/build/build.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/base/version.h"
#include "common/chat/chat_data.h"
#include "common/chat/chat_template.h"
#include "common/dataset/build/build_folder.h"
#include "common/dataset/build/corpus.h"
#include "common/dataset/dataset_writer.h"
#include "common/dataset/tokenize/chat_tokens.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "nlohmann/json.hpp"

namespace hearth::dataset {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kStateVersion = 1;
constexpr size_t kPipeBytes = size_t{1} << 20;
constexpr std::string_view kSplits[] = {"train", "validation"};

void Say(const BuildOptions& options, const std::string& line) {
  if (options.progress) {
    options.progress(line);
  }
}

absl::Status CheckChat(const BuildOptions& options) {
  if (options.chat.empty()) {
    return options.chat_template.empty()
               ? absl::OkStatus()
               : absl::InvalidArgumentError("--chat-template: acts only with --chat");
  }
  const std::vector<std::string> layouts = chat::ChatLayoutNames();
  if (std::find(layouts.begin(), layouts.end(), options.chat) == layouts.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--chat: \"", options.chat, "\" is not one of ",
                                                   absl::StrJoin(layouts, ", ")));
  }
  if (!options.field.empty()) {
    return absl::InvalidArgumentError("--field: acts only without --chat");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const BuildOptions& options) {
  if (options.inputs.empty()) {
    return absl::InvalidArgumentError("--input: no path given");
  }
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1) {
    return absl::InvalidArgumentError("--input: - can be read once");
  }
  if (options.out.empty()) {
    return absl::InvalidArgumentError("--out: no folder given");
  }
  HEARTH_RETURN_IF_ERROR(CheckChat(options));
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--validation-fraction: is ", options.validation_fraction, ", must be in [0, 1)"));
  }
  if (!(options.fraction > 0 && options.fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fraction: is ", options.fraction, ", must be in (0, 1]"));
  }
  if (options.near_duplicates != 0 &&
      !(options.near_duplicates >= 0.5 && options.near_duplicates <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--near-duplicates: is ", options.near_duplicates, ", must be in [0.5, 1]"));
  }
  if (options.max_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-tokens: is ", options.max_tokens, ", must be >= 0"));
  }
  return absl::OkStatus();
}

bool IsValidation(const Corpus::Document& document, double fraction) {
  return IsBelow(document.digest[0], fraction);
}

// Size and time of change of a file, as far as they can be had.
std::string StampOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  const auto time = fs::last_write_time(path, error);
  return absl::StrCat(path, " ", error ? 0 : size, " ", error ? 0 : time.time_since_epoch().count(),
                      "\n");
}

// Differs whenever the dataset could.
std::string FingerprintOf(const BuildOptions& options,
                          const TokenizerChoice& choice,
                          const std::vector<TextFile>& files) {
  std::string text = absl::StrCat(VersionString(), "\n");
  for (const std::string& word :
       {options.format, options.field, options.chat, options.chat_template, options.tokenizer,
        options.end_token, options.name, options.out,
        absl::StrFormat("%a %a %a", options.validation_fraction, options.fraction,
                        options.near_duplicates),
        absl::StrCat(options.max_bytes, " ", options.max_tokens, " ", options.max_document_bytes,
                     " ", options.shard_tokens)}) {
    absl::StrAppend(&text, word.size(), ":", word, "\n");
  }
  if (!choice.file.empty()) {
    const fs::path file(choice.file);
    absl::StrAppend(&text, StampOf(choice.file));
    for (const std::string_view name : kCompanionNames) {
      absl::StrAppend(&text, StampOf((file.parent_path() / std::string(name)).string()));
    }
  }
  absl::StrAppend(&text, StampOf(options.chat_template));
  for (const TextFile& file : files) {
    absl::StrAppend(&text, StampOf(file.path));
  }
  return Sha256Hex(text);
}

// Copies what comes from `from` to the file `path`.
absl::Status CopyPipe(int from, const std::string& path, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, env.NewWritableFile(path));
  std::string buffer(kPipeBytes, '\0');
  while (true) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return absl::UnavailableError(absl::StrCat("standard input: ", ErrnoText(errno)));
    }
    if (got == 0) {
      return file->Close();
    }
    HEARTH_RETURN_IF_ERROR(
        file->Append(std::string_view(buffer).substr(0, static_cast<size_t>(got))));
  }
}

// One run of Build, whose steps are its functions in their order.
class Builder {
 public:
  Builder(BuildOptions options, Env& env)
      : options_(std::move(options)),
        env_(env),
        pipe_(std::find(options_.inputs.begin(), options_.inputs.end(), "-") !=
              options_.inputs.end()),
        corpus_(options_, report_) {}

  absl::StatusOr<BuildReport> Run() {
    HEARTH_ASSIGN_OR_RETURN(const TokenizerChoice choice,
                            ParseTokenizerChoice(options_.tokenizer, env_));
    if (!options_.chat.empty() && choice.vocab > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tokenizer: ", options_.tokenizer, ": conversations are encoded with the ",
                       "tokenizer of the model that they train; give its folder"));
    }
    const std::string path =
        BuildFolder::PathFor(options_.out, options_.validation_fraction > 0, env_);
    // Standard input can be read only once: its fingerprint stays empty, and no build goes on from
    // it.
    if (!pipe_) {
      HEARTH_RETURN_IF_ERROR(corpus_.Find(path));
      fingerprint_ = FingerprintOf(options_, choice, corpus_.files());
    }
    std::vector<std::string> splits;
    if (options_.validation_fraction > 0) {
      splits.assign(std::begin(kSplits), std::end(kSplits));
    }
    HEARTH_ASSIGN_OR_RETURN(folder_, BuildFolder::Open(options_.out, splits, env_));
    HEARTH_RETURN_IF_ERROR(LoadState());
    if (pipe_) {
      HEARTH_RETURN_IF_ERROR(TakePipe());
    }
    // Also in a build that goes on: the choice follows from files and options alone, so it is the
    // same.
    HEARTH_RETURN_IF_ERROR(corpus_.Choose());
    report_.near_example.where = Named(report_.near_example.where);
    report_.near_example.earlier = Named(report_.near_example.earlier);
    Say(options_, absl::StrCat(report_.files, " text files, ", report_.bytes, " bytes"));
    HEARTH_RETURN_IF_ERROR(Choose(choice));
    HEARTH_RETURN_IF_ERROR(OpenTemplate());
    HEARTH_RETURN_IF_ERROR(OpenWriters());
    HEARTH_RETURN_IF_ERROR(Encode());
    HEARTH_RETURN_IF_ERROR(Finish());
    return std::move(report_);
  }

 private:
  std::string StatePath(std::string_view name) const {
    return absl::StrCat(folder_->path(), "/", std::string(name));
  }

  // What a killed build with the same options left; nothing of another one stays.
  absl::Status LoadState() {
    absl::StatusOr<std::optional<std::string>> text = folder_->LoadState();
    if (text.ok() && text->has_value() && !fingerprint_.empty() && ParseState(**text)) {
      report_.resumed = taken_;
      Say(options_,
          absl::StrCat("going on behind ", taken_, " documents of a build that was ended"));
      return absl::OkStatus();
    }
    taken_ = 0;
    saved_.clear();
    report_.lengths = Lengths();
    return folder_->Clear();
  }

  // Whether it is a state of this build.
  bool ParseState(const std::string& text) {
    const Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto number = [&](const char* key) {
      const auto it = state.find(key);
      return it != state.end() && it->is_number_integer() ? it->get<int64_t>() : -1;
    };
    const auto words = [&](const char* key) {
      const auto it = state.find(key);
      return it != state.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    if (!state.is_object() || number("version") != kStateVersion ||
        words("fingerprint") != fingerprint_ || number("documents") < 0 ||
        !state.contains("outputs") || !state["outputs"].is_array()) {
      return false;
    }
    for (const Json& output : state["outputs"]) {
      absl::StatusOr<DatasetInfo> info = ParseDatasetInfo(output.dump(), "build.json");
      if (!info.ok()) {
        return false;
      }
      saved_.push_back(*std::move(info));
    }
    absl::StatusOr<Lengths> lengths = Lengths::Parse(words("lengths"));
    if (!lengths.ok()) {
      return false;
    }
    report_.lengths = *std::move(lengths);
    taken_ = number("documents");
    return true;
  }

  // Describes the documents that were placed. Empty: too early, as a dataset without tokens has no
  // description.
  std::string StateText() const {
    Json state;
    state["version"] = kStateVersion;
    state["fingerprint"] = fingerprint_;
    state["documents"] = taken_;
    state["lengths"] = report_.lengths.ToText();
    state["outputs"] = Json::array();
    for (const std::unique_ptr<DatasetWriter>& writer : writers_) {
      if (writer->info().tokens == 0) {
        return "";
      }
      state["outputs"].push_back(Json::parse(ToJson(writer->info())));
    }
    return state.dump();
  }

  absl::Status Save(const std::string& state) {
    // First: a saved state never counts bytes that are not on the disk.
    for (const std::unique_ptr<DatasetWriter>& writer : writers_) {
      HEARTH_RETURN_IF_ERROR(writer->Sync());
    }
    HEARTH_RETURN_IF_ERROR(folder_->SaveState(state));
    return fault::Check("dataset.saved");
  }

  absl::Status TakePipe() {
    const std::string format = options_.format.empty() ? "text" : options_.format;
    pipe_path_ = StatePath(absl::StrCat("standard-input.", format));
    HEARTH_RETURN_IF_ERROR(CopyPipe(options_.standard_input, pipe_path_, env_));
    for (std::string& input : options_.inputs) {
      if (input == "-") {
        input = pipe_path_;
      }
    }
    return corpus_.Find("");
  }

 public:
  // An error's text with the name that people know.
  absl::Status Named(const absl::Status& status) const {
    return status.ok() ? status : absl::Status(status.code(), Named(std::string(status.message())));
  }

 private:
  std::string Named(const std::string& text) const {
    return pipe_path_.empty() ? text : absl::StrReplaceAll(text, {{pipe_path_, "standard input"}});
  }

  // Begins of the documents of the training part, each up to its share of `wanted` bytes, in whole
  // lines.
  absl::Status ForTrainingTexts(int64_t wanted,
                                const TrainingTexts::Take& work,
                                const TrainingTexts::Take& commit) {
    // The same share of each document, so that all kinds of text train the tokenizer.
    const double share =
        std::min(1.0, static_cast<double>(wanted) / static_cast<double>(report_.bytes));
    const auto give_to = [this, share](const TrainingTexts::Take& take) {
      return [this, share, &take](Corpus::Documents& documents) {
        for (const Corpus::Document& document : documents.list) {
          if (!IsValidation(document, options_.validation_fraction)) {
            const std::string_view text = document.text;
            const size_t budget = static_cast<size_t>(share * static_cast<double>(text.size())) + 1;
            take(text.substr(0, budget < text.size() ? text.find('\n', budget - 1) : text.npos));
          }
        }
        return absl::OkStatus();
      };
    };
    return corpus_.ForEach("training", 0, give_to(work), {give_to(commit)});
  }

  absl::Status Choose(const TokenizerChoice& choice) {
    const std::string dir = StatePath("tokenizer");
    const std::string meta = absl::StrCat(dir, "/", std::string(kTokenizerFileName));
    // What was written before is in this tokenizer's tokens, so it is never chosen again.
    if (!saved_.empty() && env_.Exists(meta)) {
      return LoadTokenizer(dir);
    }
    absl::StatusOr<ChosenTokenizer> chosen = ChooseTokenizer(
        choice, options_.end_token,
        {[&](int64_t wanted, const TrainingTexts::Take& work, const TrainingTexts::Take& commit) {
          Say(options_, absl::StrCat("training ", options_.tokenizer));
          return ForTrainingTexts(wanted, work, commit);
        }},
        env_);
    if (!chosen.ok()) {
      return Annotate(chosen.status(), absl::StrCat("--tokenizer: ", options_.tokenizer));
    }
    chosen_ = *std::move(chosen);
    if (!options_.chat_template.empty()) {
      HEARTH_ASSIGN_OR_RETURN(chosen_.files[std::string(chat::kTemplateFileName)], GivenTemplate());
    }
    HEARTH_RETURN_IF_ERROR(env_.CreateDirs(dir));
    for (const auto& [name, bytes] : chosen_.files) {
      HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(absl::StrCat(dir, "/", name), bytes));
    }
    // Last: its presence says that the other files are there (see above).
    return env_.WriteFileAtomically(meta, ToJson(chosen_.tokenizer->info()));
  }

  absl::Status LoadTokenizer(const std::string& dir) {
    HEARTH_ASSIGN_OR_RETURN(chosen_.tokenizer, OpenTokenizerIn(dir, env_));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env_.ListDir(dir));
    for (const std::string& name : names) {
      if (name != kTokenizerFileName) {
        HEARTH_ASSIGN_OR_RETURN(chosen_.files[name], env_.ReadFile(absl::StrCat(dir, "/", name)));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> GivenTemplate() {
    for (const chat::NamedTemplate& named : chat::NamedTemplates()) {
      if (named.name == options_.chat_template) {
        return std::string(named.text);
      }
    }
    return env_.ReadFile(options_.chat_template);
  }

  absl::Status OpenTemplate() {
    if (options_.chat.empty()) {
      return absl::OkStatus();
    }
    absl::StatusOr<chat::ChatTemplate> opened = chat::ChatTemplate::FromFiles(
        chosen_.files, options_.chat_template.empty() ? options_.tokenizer : "--chat-template");
    if (absl::IsNotFound(opened.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tokenizer: ", options_.tokenizer,
                       " has no chat template; --chat-template chatml or a file gives one"));
    }
    HEARTH_RETURN_IF_ERROR(opened.status());
    template_.emplace(*std::move(opened));
    return absl::OkStatus();
  }

  absl::Status OpenWriters() {
    const size_t outputs = options_.validation_fraction > 0 ? 2 : 1;
    std::string name = options_.name;
    if (name.empty()) {
      name = options_.out.substr(options_.out.find_last_of('/') + 1);
    }
    for (size_t i = 0; i < outputs; ++i) {
      DatasetWriter::Options writer;
      writer.info.name = name;
      writer.info.split = outputs == 1 ? "all" : std::string(kSplits[i]);
      writer.info.tokenizer = chosen_.tokenizer->info();
      writer.info.vocab = chosen_.tokenizer->vocab();
      writer.info.eos = chosen_.tokenizer->eos();
      writer.info.loss_tokens = template_.has_value() ? 0 : -1;
      writer.tokenizer_files = chosen_.files;
      writer.shard_tokens = options_.shard_tokens;
      writer.work_dir = folder_->WorkPath(i);
      if (i < saved_.size()) {
        writer.resume = saved_[i];
      }
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<DatasetWriter> created,
                              DatasetWriter::Create(folder_->DataPath(i), std::move(writer), env_));
      tokens_ += created->info().tokens;
      writers_.push_back(std::move(created));
    }
    return outputs == 1 ? absl::OkStatus() : env_.CreateDirs(StatePath("data"));
  }

  // Makes texts into tokens as shards have them, with end tokens; conversations into tokens with a
  // mask that says where they end. Thread-safe.
  absl::Status Pack(Corpus::Documents& documents) const {
    for (Corpus::Document& document : documents.list) {
      const absl::StatusOr<int64_t> tokens = template_.has_value()
                                                 ? PackChat(document, &documents.encoded)
                                                 : PackText(document, &documents.encoded);
      if (!tokens.ok()) {
        return Annotate(tokens.status(), document.Where());
      }
      document.tokens = *tokens;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> PackText(const Corpus::Document& document, Encoded* encoded) const {
    Tokenizer& tokenizer = *chosen_.tokenizer;
    const TokenWidth width = WidthOf(tokenizer.vocab());
    HEARTH_ASSIGN_OR_RETURN(const int64_t tokens,
                            tokenizer.Pack(document.text, width, &encoded->packed));
    if (const int32_t eos = tokenizer.eos(); eos >= 0) {
      HEARTH_RETURN_IF_ERROR(PackChecked({eos}, tokenizer.vocab(), width, &encoded->packed));
      return tokens + 1;
    }
    return tokens;
  }

  absl::StatusOr<int64_t> PackChat(const Corpus::Document& document, Encoded* encoded) const {
    Tokenizer& tokenizer = *chosen_.tokenizer;
    HEARTH_ASSIGN_OR_RETURN(const chat::Conversation conversation,
                            chat::FromText(std::string(document.text)));
    HEARTH_ASSIGN_OR_RETURN(const ChatTokens chat,
                            TokenizeChat(*template_, tokenizer, conversation));
    encoded->mask.Append(chat.mask);
    HEARTH_RETURN_IF_ERROR(
        PackChecked(chat.tokens, tokenizer.vocab(), WidthOf(tokenizer.vocab()), &encoded->packed));
    return static_cast<int64_t>(chat.tokens.size());
  }

  // Decides where the documents go, counts and hashes them. Nothing is written yet, so that another
  // thread can write the batch before.
  absl::Status Place(Corpus::Documents& documents) {
    if (full_) {
      // Corpus::ForEach takes this code for an end in order.
      return absl::CancelledError("--max-tokens is reached");
    }
    Encoded& encoded = documents.encoded;
    Stretch stretch;
    for (const Corpus::Document& document : documents.list) {
      if (options_.max_tokens > 0 && tokens_ + document.tokens > options_.max_tokens) {
        full_ = true;
        break;
      }
      const size_t output =
          writers_.size() > 1 && IsValidation(document, options_.validation_fraction) ? 1 : 0;
      if (output != stretch.output) {
        Add(&stretch, &encoded);
        stretch.output = output;
      }
      ++stretch.documents;
      stretch.tokens += document.tokens;
      ++encoded.taken;
      ++taken_;
      tokens_ += document.tokens;
      report_.lengths.Add(document.tokens);
      unsaved_ += static_cast<int64_t>(document.text.size());
      if (unsaved_ >= options_.save_bytes && !pipe_) {
        Add(&stretch, &encoded);
        AddSavePoint(&encoded);
      }
    }
    Add(&stretch, &encoded);
    return absl::OkStatus();
  }

  // Documents that follow each other and go to the same output.
  struct Stretch {
    size_t output = 0;
    int64_t documents = 0;
    int64_t tokens = 0;
    size_t packed_begin = 0;  // in Encoded
    size_t mask_begin = 0;
  };

  // Adds them to their dataset, and begins the one that follows.
  void Add(Stretch* stretch, Encoded* encoded) {
    DatasetWriter& writer = *writers_[stretch->output];
    const size_t packed = static_cast<size_t>(stretch->tokens * Bytes(writer.width()));
    const size_t mask = writer.info().has_mask() ? static_cast<size_t>(stretch->tokens) : 0;
    writer.Add(encoded->packed.view().substr(stretch->packed_begin, packed), stretch->documents,
               stretch->tokens, encoded->mask.view().substr(stretch->mask_begin, mask),
               &encoded->writes[stretch->output]);
    stretch->packed_begin += packed;
    stretch->mask_begin += mask;
    stretch->documents = stretch->tokens = 0;
  }

  void AddSavePoint(Encoded* encoded) {
    const std::string state = StateText();
    if (!state.empty()) {
      encoded->saves.push_back(
          {encoded->taken, {encoded->writes[0].size(), encoded->writes[1].size()}, state});
      unsaved_ = 0;
    }
  }

  // Does what Place decided.
  absl::Status Write(const Corpus::Documents& documents) {
    const Encoded& encoded = documents.encoded;
    std::array<size_t, Encoded::kMaxOutputs> written{};
    const auto write_up_to = [&](const std::array<size_t, Encoded::kMaxOutputs>& ends) {
      absl::Status status;
      for (size_t i = 0; i < writers_.size(); ++i) {
        status.Update(writers_[i]->Carry(
            absl::MakeConstSpan(encoded.writes[i]).subspan(written[i], ends[i] - written[i])));
      }
      written = ends;
      return status;
    };
    auto save = encoded.saves.begin();
    for (size_t i = 1; i <= encoded.taken; ++i) {
      HEARTH_RETURN_IF_ERROR(fault::Check("dataset.document"));
      if (save != encoded.saves.end() && save->documents == i) {
        HEARTH_RETURN_IF_ERROR(write_up_to(save->writes));
        HEARTH_RETURN_IF_ERROR(Save(save->state));
        ++save;
      }
    }
    return write_up_to({encoded.writes[0].size(), encoded.writes[1].size()});
  }

  absl::Status Encode() {
    HEARTH_RETURN_IF_ERROR(corpus_.ForEach("encoding", taken_,
                                           [this](Corpus::Documents& d) { return Pack(d); },
                                           {[this](Corpus::Documents& d) { return Place(d); },
                                            [this](Corpus::Documents& d) { return Write(d); }}));
    report_.over_cap = corpus_.chosen() - taken_;
    if (taken_ == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--max-tokens: is ", options_.max_tokens, ", the first document is longer"));
    }
    // Before the folders are moved: a build that is killed while it publishes goes on from here.
    const std::string state = StateText();
    return state.empty() ? absl::OkStatus() : Save(state);
  }

  absl::Status Finish() {
    for (size_t i = 0; i < writers_.size(); ++i) {
      const std::string path = writers_.size() == 1
                                   ? options_.out
                                   : absl::StrCat(options_.out, "/", std::string(kSplits[i]));
      absl::StatusOr<DatasetInfo> info = writers_[i]->Finish();
      if (absl::IsInvalidArgument(info.status())) {
        return absl::InvalidArgumentError(
            absl::StrCat("--validation-fraction: no document fell to ", path, "; give more text"));
      }
      HEARTH_RETURN_IF_ERROR(info.status());
      report_.outputs.push_back({path, *std::move(info)});
    }
    return folder_->Publish();
  }

  BuildOptions options_;
  Env& env_;
  const bool pipe_;  // an input is "-"
  std::string pipe_path_;
  std::string fingerprint_;  // empty: the build cannot be continued
  BuildReport report_;
  Corpus corpus_;
  std::unique_ptr<BuildFolder> folder_;
  ChosenTokenizer chosen_;
  std::optional<chat::ChatTemplate> template_;  // of conversations
  std::vector<DatasetInfo> saved_;              // by a killed build
  std::vector<std::unique_ptr<DatasetWriter>> writers_;
  int64_t taken_ = 0;    // documents written
  int64_t tokens_ = 0;   // theirs
  int64_t unsaved_ = 0;  // bytes of text since the last save point
  bool full_ = false;    // --max-tokens is reached
};

}  // namespace

absl::StatusOr<BuildReport> Build(const BuildOptions& given, Env& env) {
  BuildOptions options = given;
  while (options.out.size() > 1 && options.out.back() == '/') {
    options.out.pop_back();
  }
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  Builder builder(std::move(options), env);
  absl::StatusOr<BuildReport> report = builder.Run();
  return report.ok() ? std::move(report) : builder.Named(report.status());
}

std::string ToLine(const BuildProgress& progress, absl::Duration elapsed) {
  const double done = static_cast<double>(progress.done);
  const double total = static_cast<double>(std::max<int64_t>(progress.total, 1));
  const double seconds = absl::ToDoubleSeconds(elapsed);
  std::string line = absl::StrFormat("%s %d %%, %.2f of %.2f GB", std::string(progress.phase),
                                     static_cast<int>(100 * done / total), done / 1e9, total / 1e9);
  if (seconds > 0 && done > 0) {
    const int64_t left = std::llround(seconds * (total - done) / done);
    absl::StrAppendFormat(&line, ", %.1f MB/s, %d:%02d left", done / seconds / 1e6, left / 60,
                          left % 60);
  }
  return line;
}

std::string ToText(const BuildReport& report) {
  std::string text = absl::StrCat(
      "files       ", report.files, " (", report.bytes, " bytes)\nskipped     ", report.binary,
      " not text, ", report.duplicates, " duplicates, ", report.oversized,
      " too large or over the cap, ", report.empty, " empty, ", report.unreadable, " unreadable");
  if (report.near_duplicates > 0) {
    absl::StrAppend(&text, ", ", report.near_duplicates, " near duplicates");
  }
  if (report.sampled_out > 0) {
    absl::StrAppend(&text, ", ", report.sampled_out, " by --fraction");
  }
  if (report.over_cap > 0) {
    absl::StrAppend(&text, ", ", report.over_cap, " beyond --max-tokens");
  }
  absl::StrAppend(&text, "\n");
  if (report.near_duplicates > 0) {
    absl::StrAppendFormat(&text, "near        %s is %.2f like %s\n", report.near_example.where,
                          report.near_example.similarity, report.near_example.earlier);
  }
  int64_t tokens = 0;
  for (const BuildReport::Output& output : report.outputs) {
    tokens += output.info.tokens;
  }
  const int64_t documents = report.lengths.count();
  if (documents > 0) {
    absl::StrAppendFormat(
        &text,
        "lengths     mean %.0f tokens, half of the documents up to %d, 90 %% up to %d, 99 %% "
        "up to %d, longest %d\n",
        static_cast<double>(tokens) / static_cast<double>(documents), report.lengths.Quantile(0.5),
        report.lengths.Quantile(0.9), report.lengths.Quantile(0.99), report.lengths.longest());
  }
  const bool texts = report.outputs.empty() || !report.outputs[0].info.has_mask();
  if (texts && tokens > documents && report.over_cap == 0) {
    absl::StrAppendFormat(
        &text, "density     %.3f bytes a token\n",
        static_cast<double>(report.bytes) / static_cast<double>(tokens - documents));
  }
  if (report.resumed > 0) {
    absl::StrAppend(&text, "resumed     behind ", report.resumed, " documents\n");
  }
  for (const BuildReport::Output& output : report.outputs) {
    absl::StrAppend(&text, "dataset     ", output.path, ": ", output.info.tokens, " tokens, ",
                    output.info.documents, " documents, vocabulary ", output.info.vocab, " (",
                    std::string(tokenizer::NameOf(output.info.tokenizer.kind)), ")");
    if (output.info.has_mask()) {
      absl::StrAppend(&text, ", ", output.info.loss_tokens, " tokens count in the loss");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace hearth::dataset
