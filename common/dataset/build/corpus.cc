#include "common/dataset/build/corpus.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/chat_data.h"
#include "common/dataset/build/ordered_batches.h"
#include "common/io/sha256.h"

namespace hearth::dataset {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{1} << 20;
constexpr size_t kBatchDocuments = 4096;

std::array<uint64_t, 2> Digest(Sha256& hash, std::string_view text) {
  hash.Update(text);
  const auto digest = hash.Finish();
  std::array<uint64_t, 2> value;
  std::memcpy(value.data(), digest.data(), sizeof value);
  return value;
}

uint64_t RandomSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

bool IsBelow(uint64_t hash, double fraction) {
  // 2^53 keeps the comparison exact in double.
  return static_cast<double>(hash >> 11) < fraction * 9007199254740992.0;
}

// Reads the records of the sources one after the other into batches.
class Corpus::Reading {
 public:
  // `chosen_only`: without those that were not chosen, and without the first `skip` that were.
  Reading(Corpus& corpus, bool chosen_only, int64_t skip)
      : corpus_(corpus), chosen_only_(chosen_only), skip_(skip) {}

  // Fills `batch`; false: nothing is left.
  absl::StatusOr<bool> Next(Batch& batch) {
    batch.Clear();
    size_t read = 0;  // of the bytes in `batch`
    while (source_ < corpus_.sources_.size() && read < kBatchBytes &&
           batch.items.size() < kBatchDocuments) {
      if (reader_ == nullptr) {
        HEARTH_RETURN_IF_ERROR(OpenSource(batch));
        continue;
      }
      HEARTH_ASSIGN_OR_RETURN(const std::optional<Record> record, reader_->Read(&batch.bytes));
      if (!record.has_value()) {
        HEARTH_RETURN_IF_ERROR(CloseSource());
        continue;
      }
      read = record->begin + record->size;
      HEARTH_ASSIGN_OR_RETURN(const bool wanted, IsWanted(*record));
      if (wanted) {
        Add(*record, batch);
      }
    }
    if (reader_ != nullptr) {
      reader_->Leave(&batch.bytes);
    }
    batch.files_bytes = finished_bytes_ + (reader_ == nullptr ? 0 : reader_->bytes_read());
    return !batch.items.empty() || source_ < corpus_.sources_.size();
  }

 private:
  Source& source() { return corpus_.sources_[source_]; }

  absl::Status OpenSource(Batch& batch) {
    const TextFile& file = source().file;
    const bool useless = chosen_only_ && std::find(source().chosen.begin(), source().chosen.end(),
                                                   true) == source().chosen.end();
    const InputFormat& format = FormatOfFile(file.path, *corpus_.format_);
    // A text is at least as large as its file. One that is cut may still fit in part.
    const bool too_large =
        !chosen_only_ && !format.has_fields &&
        corpus_.IsOverCap(file, corpus_.taken_bytes_.load(std::memory_order_relaxed));
    if (useless || too_large) {
      if (too_large) {
        AddFinding(batch, Finding::kTooLong);
      }
      NextSource();
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<RecordReader>> reader = RecordReader::Open(
        file.path, format, corpus_.options_.field, corpus_.options_.max_document_bytes);
    if (reader.ok()) {
      reader_ = *std::move(reader);
      return absl::OkStatus();
    }
    if (!absl::IsPermissionDenied(reader.status()) && !absl::IsNotFound(reader.status())) {
      return reader.status();
    }
    if (chosen_only_) {
      return Changed();
    }
    AddFinding(batch, Finding::kUnreadable);
    NextSource();
    return absl::OkStatus();
  }

  void Add(const Record& record, Batch& batch) {
    Item& item = batch.items.emplace_back();
    item.source = source_;
    if (batch.parsers.empty() || batch.parsers.back() != reader_->parser()) {
      batch.parsers.push_back(reader_->parser());
    }
    item.document.parser = batch.parsers.back().get();
    item.document.record = record;
  }

  void AddFinding(Batch& batch, Finding finding) {
    Item& item = batch.items.emplace_back();
    item.source = source_;
    item.finding = finding;
  }

  absl::Status CloseSource() {
    if (chosen_only_ && record_ != source().chosen.size()) {
      return Changed();
    }
    reader_.reset();
    NextSource();
    return absl::OkStatus();
  }

  void NextSource() {
    finished_bytes_ += source().file.size;
    record_ = 0;
    ++source_;
  }

  absl::StatusOr<bool> IsWanted(const Record& record) {
    if (!chosen_only_) {
      return true;
    }
    if (record_ >= source().chosen.size()) {
      return Changed();
    }
    if (!source().chosen[record_++]) {
      return false;
    }
    if (record.too_long) {
      return Changed();
    }
    return --skip_ < 0;
  }

  absl::Status Changed() {
    return absl::AbortedError(
        absl::StrCat(source().file.path, ": changed while the dataset was being built"));
  }

  Corpus& corpus_;
  const bool chosen_only_;
  int64_t skip_;
  size_t source_ = 0;
  size_t record_ = 0;  // in the source
  int64_t finished_bytes_ = 0;
  std::unique_ptr<RecordReader> reader_;  // null: the source is not open yet
};

void Corpus::Batch::Clear() {
  items.clear();
  bytes.Clear();
  space.texts.clear();
  parsers.clear();
  documents.list.clear();
  documents.encoded.Clear();
}

Corpus::Corpus(const BuildOptions& options, BuildReport& report)
    : options_(options),
      report_(report),
      threads_(options.threads > 0
                   ? options.threads
                   : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))),
      seed_(RandomSeed()),
      format_(FindInputFormat(options.format.empty() ? "text" : options.format)) {}

absl::Status Corpus::Find(const std::string& except) {
  if (format_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--format: \"", options_.format, "\" is not one of text, jsonl, csv"));
  }
  HEARTH_ASSIGN_OR_RETURN(files_, FindFiles(options_.inputs, &report_.unreadable));
  if (!except.empty()) {
    const std::string folder = AbsolutePath(except) + "/";
    files_.erase(std::remove_if(files_.begin(), files_.end(),
                                [&folder](const TextFile& file) {
                                  return AbsolutePath(file.path).starts_with(folder);
                                }),
                 files_.end());
  }
  bool any_fields = false;
  for (const TextFile& file : files_) {
    files_bytes_ += file.size;
    const InputFormat& format = FormatOfFile(file.path, *format_);
    any_fields |= format.has_fields;
    if (!options_.chat.empty()) {
      if (format.kind != InputFormat::Kind::kJsonLines) {
        return absl::InvalidArgumentError(absl::StrCat(
            file.path,
            ": --chat reads .jsonl files, one conversation in each line; --format jsonl "
            "says that a file of another name, or standard input, is one"));
      }
      continue;
    }
    if (format.has_fields && options_.field.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path, ": --field must say which field of each ",
          format.kind == InputFormat::Kind::kCsv ? "record" : "line", " has the text"));
    }
  }
  // What has no fields would be read as text, however much it looks like JSON.
  if (!options_.field.empty() && !files_.empty() && !any_fields) {
    return absl::InvalidArgumentError(
        absl::StrCat(files_[0].path,
                     ": --field is for .jsonl and .csv files; --format jsonl or csv says that a "
                     "file of another name, or standard input, is one"));
  }
  return absl::OkStatus();
}

absl::Status Corpus::Choose() {
  for (const TextFile& file : files_) {
    sources_.push_back({file, static_cast<uint32_t>(sources_.size()), {}});
  }
  if (options_.near_duplicates > 0) {
    near_.emplace(options_.near_duplicates);
  }
  if (options_.max_bytes > 0) {
    // A cap would take the first folders alone. In the order of hashes it takes a sample of all.
    Sha256 hash;
    std::stable_sort(sources_.begin(), sources_.end(), [&hash](const Source& a, const Source& b) {
      return Digest(hash, a.file.path)[0] < Digest(hash, b.file.path)[0];
    });
  }
  Reading reading(*this, false, 0);
  const auto choose = [this](Batch& batch) {
    ChooseFrom(batch);
    Say("reading", batch);
    return absl::OkStatus();
  };
  HEARTH_RETURN_IF_ERROR(
      OrderedBatches<Batch>(
          threads_, {[&reading](Batch& batch) { return reading.Next(batch); },
                     {{false, [this](Batch& batch) { return Inspect(batch); }}, {true, choose}}})
          .Run());
  // Back to the order of paths, in which documents are written with or without a cap.
  std::sort(sources_.begin(), sources_.end(),
            [](const Source& a, const Source& b) { return a.file.path < b.file.path; });
  for (const Source& source : sources_) {
    const int64_t chosen = std::count(source.chosen.begin(), source.chosen.end(), true);
    report_.files += chosen > 0 ? 1 : 0;
    chosen_ += chosen;
  }
  seen_ = {};
  near_.reset();
  spots_ = {};
  if (chosen_ == 0) {
    return absl::InvalidArgumentError(
        report_.sampled_out > 0 ? absl::StrCat("--fraction: no document fell to ",
                                               options_.fraction, "; give more text")
        : report_.oversized > 0
            ? absl::StrCat("--input: all documents are longer than ", options_.max_document_bytes,
                           " bytes or over --max-bytes")
            : "--input: no text files found");
  }
  return absl::OkStatus();
}

bool Corpus::IsOverCap(const TextFile& file, int64_t taken) const {
  return options_.max_bytes > 0 && file.size <= options_.max_document_bytes &&
         file.size > options_.max_bytes - taken;
}

absl::StatusOr<bool> Corpus::ReadDocument(Document& document, Batch& batch) const {
  HEARTH_ASSIGN_OR_RETURN(const RecordText found,
                          document.parser->TextOf(document.record, &batch.bytes, &batch.space));
  document.text = found.text;
  if (!options_.chat.empty()) {
    HEARTH_ASSIGN_OR_RETURN(
        const chat::Conversation conversation,
        chat::ParseConversation(std::string(found.text), options_.chat, document.Where()));
    document.text = batch.space.texts.emplace_back(chat::ToText(conversation));
  }
  return (found.is_text && options_.chat.empty()) || IsText(document.text);
}

// Four times as fast as SHA-256. The seed is another one in each run, so that nobody can prepare a
// text that makes another one a duplicate; by chance two of 10^9 texts share one of 2^128 hashes in
// one of 10^20 runs.
std::array<uint64_t, 2> Corpus::HashOf(Sha256& sha256, std::string_view text) const {
  if (options_.validation_fraction > 0 || options_.fraction < 1) {
    return Digest(sha256, text);
  }
  const XXH128_hash_t hash = XXH3_128bits_withSeed(text.data(), text.size(), seed_);
  return {hash.low64, hash.high64};
}

absl::Status Corpus::Inspect(Batch& batch) const {
  Sha256 hash;
  for (Item& item : batch.items) {
    Document& document = item.document;
    if (item.finding != Finding::kText) {
      continue;
    }
    if (document.record.too_long) {
      item.finding = Finding::kTooLong;
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const bool is_text, ReadDocument(document, batch));
    item.bytes = static_cast<int64_t>(document.text.size());
    if (!is_text) {
      item.finding = Finding::kBinary;
      continue;
    }
    document.digest = HashOf(hash, document.text);
    if (near_.has_value()) {
      if (const std::optional<Signature> signature = MakeSignature(document.text)) {
        item.signature = std::make_unique<Signature>(*signature);
      }
    }
  }
  return absl::OkStatus();
}

void Corpus::ChooseFrom(Batch& batch) {
  for (const Item& item : batch.items) {
    sources_[item.source].chosen.push_back(Take(item));
  }
  // Reading looks at it on another thread. An older value makes it open a file in vain; Take
  // decides by the exact sum.
  taken_bytes_.store(report_.bytes, std::memory_order_relaxed);
}

bool Corpus::Take(const Item& item) {
  const TextFile& file = sources_[item.source].file;
  const bool is_file = item.document.parser == nullptr || item.document.record.whole;
  if (item.finding == Finding::kUnreadable) {
    ++report_.unreadable;
    return false;
  }
  // Files over the cap count as such whether or not Reading came to open them.
  if (item.finding == Finding::kTooLong || (is_file && IsOverCap(file, report_.bytes))) {
    ++report_.oversized;
    return false;
  }
  if (item.finding == Finding::kBinary) {
    ++report_.binary;
    return false;
  }
  if (item.bytes == 0) {
    ++report_.empty;
    return false;
  }
  if (options_.max_bytes > 0 && report_.bytes + item.bytes > options_.max_bytes) {
    ++report_.oversized;
    return false;
  }
  if (options_.fraction < 1 && !IsBelow(item.document.digest[1], options_.fraction)) {
    ++report_.sampled_out;
    return false;
  }
  if (!seen_.insert(item.document.digest).second) {
    ++report_.duplicates;
    return false;
  }
  if (near_.has_value() && IsNearDuplicate(item)) {
    return false;
  }
  report_.bytes += item.bytes;
  return true;
}

bool Corpus::IsNearDuplicate(const Item& item) {
  if (item.signature == nullptr) {
    return false;  // no word
  }
  const Record& record = item.document.record;
  const Spot spot = {sources_[item.source].index,
                     record.whole ? 0 : static_cast<uint32_t>(record.line)};
  const std::optional<NearDuplicates::Match> match = near_->FindOrAdd(*item.signature);
  if (!match.has_value()) {
    spots_.push_back(spot);
    return false;
  }
  if (++report_.near_duplicates == 1) {
    report_.near_example = {Text(spot), Text(spots_[match->text]), match->similarity};
  }
  return true;
}

std::string Corpus::Text(const Spot& spot) const {
  const std::string& path = files_[spot.file].path;
  return spot.line == 0 ? path : absl::StrCat(path, ":", spot.line);
}

void Corpus::Say(std::string_view phase, const Batch& batch) const {
  if (options_.on_progress) {
    options_.on_progress({phase, batch.files_bytes, files_bytes_});
  }
}

absl::Status Corpus::ForEach(std::string_view phase,
                             int64_t skip,
                             const BatchStep& work,
                             const std::vector<BatchStep>& commits) {
  Reading reading(*this, true, skip);
  const bool needs_digest = options_.validation_fraction > 0;
  const auto work_on = [&](Batch& batch) -> absl::Status {
    Sha256 hash;
    for (Item& item : batch.items) {
      Document& document = item.document;
      HEARTH_ASSIGN_OR_RETURN(const bool is_text, ReadDocument(document, batch));
      if (!is_text) {
        return absl::AbortedError(
            absl::StrCat(document.Where(), ": changed while the dataset was being built"));
      }
      if (needs_digest) {
        document.digest = Digest(hash, document.text);
      }
      batch.documents.list.push_back(document);
    }
    return work(batch.documents);
  };
  OrderedBatches<Batch>::Steps steps = {[&](Batch& batch) { return reading.Next(batch); },
                                        {{false, work_on}}};
  for (const BatchStep& commit : commits) {
    steps.stages.push_back({true, [&commit](Batch& batch) { return commit(batch.documents); }});
  }
  steps.stages.push_back({true, [&](Batch& batch) {
                            Say(phase, batch);
                            return absl::OkStatus();
                          }});
  const absl::Status status = OrderedBatches<Batch>(threads_, std::move(steps)).Run();
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

}  // namespace hearth::dataset
