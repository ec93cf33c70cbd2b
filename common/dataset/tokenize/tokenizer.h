// Text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/chat/chat_template.h"
#include "common/dataset/byte_buffer.h"
#include "common/dataset/format.h"
#include "common/io/env.h"

namespace hearth::dataset {

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // UTF-8 text (bytes: any) to tokens, without an end token.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) = 0;
  // Appends the same tokens as shards have them to `out`; returns how many. kInternal: one is not
  // below the vocabulary.
  virtual absl::StatusOr<int64_t> Pack(std::string_view text, TokenWidth width, ByteBuffer* out);
  // The end token decodes to nothing. kInvalidArgument: a token outside [0, vocab).
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) = 0;
  // What one token stands for in a text, the end token too. kInvalidArgument: as of Decode;
  // kUnimplemented: this tokenizer cannot tell.
  virtual absl::StatusOr<std::string> BytesOf(int32_t token);
  virtual int32_t vocab() const = 0;
  virtual int32_t eos() const = 0;  // end of document, -1 = none
  virtual TokenizerInfo info() const = 0;
};

// Appends tokens as shards have them. kInternal: one is not below the vocabulary.
absl::Status PackChecked(absl::Span<const int32_t> tokens,
                         int32_t vocab,
                         TokenWidth width,
                         ByteBuffer* out);

// Token i < 256 is byte i; 256 ends a document. vocab 257.
std::unique_ptr<Tokenizer> NewBytesTokenizer();

// Byte-level BPE as common/tokenizer reads it. `json`: a tokenizer.json (`file_name` in errors);
// `eos`: id of the token that ends a document, -1 = none. Errors: those of BpeTokenizer::Parse.
absl::StatusOr<std::unique_ptr<Tokenizer>> NewBpeTokenizer(std::string_view json,
                                                           std::string_view file_name,
                                                           int32_t eos);

// Stands beside a byte-level BPE's file in dataset and checkpoint folders.
inline constexpr std::string_view kTokenizerConfigName = "tokenizer_config.json";

// Files that stand beside a tokenizer and travel with it, where they are there.
inline constexpr std::string_view kCompanionNames[] = {kTokenizerConfigName,
                                                       chat::kTemplateFileName};

struct SentencePieceTraining {
  int32_t vocab = 4096;
  std::string model_type = "bpe";  // bpe | unigram
};

// sentencepiece in a process of its own (libexec/hearth-tokenizer), with a socket as its stdin and
// stdout, because Debian's libsentencepiece contains a protobuf that clashes with ours. If the
// process dies, every later call returns kUnavailable.
class TokenizerProcess : public Tokenizer {
 public:
  // `model`: bytes of a sentencepiece model. kInvalidArgument: not a model; kNotFound: no
  // hearth-tokenizer beside this program.
  static absl::StatusOr<std::unique_ptr<TokenizerProcess>> Start(std::string_view model);

  // Trains on `lines` (UTF-8, one sentence each) and returns the bytes of the model. Byte fallback,
  // identity normalisation: Decode(Encode(text)) == text. Deterministic. kInvalidArgument:
  // vocabulary too large for the text.
  static absl::StatusOr<std::string> Train(const std::vector<std::string>& lines,
                                           const SentencePieceTraining& options);

  ~TokenizerProcess() override;  // ends and reaps the process
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) override;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) override;
  int32_t vocab() const override { return vocab_; }
  int32_t eos() const override { return eos_; }
  TokenizerInfo info() const override;

 private:
  class Pipe;
  explicit TokenizerProcess(std::unique_ptr<Pipe> pipe);

  absl::Mutex mu_;
  std::unique_ptr<Pipe> pipe_ ABSL_GUARDED_BY(mu_);
  int32_t vocab_ = 0;
  int32_t eos_ = -1;
};

// $HEARTH_LIBEXEC, else ../libexec of the running program; "<that>/hearth-tokenizer". kNotFound
// says where it looked.
absl::StatusOr<std::string> FindTokenizerProgram();

// The tokenizer recorded in dataset folder `dir`. kFailedPrecondition: kind "none".
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const TokenizerInfo& info,
                                                         const std::string& dir,
                                                         Env& env = Env::Real());

// File in a checkpoint folder that says how its tokens become text: {kind, file, vocab, eos}.
inline constexpr std::string_view kTokenizerFileName = "hearth_tokenizer.json";

// Copies the tokenizer of dataset folder `from` into folder `to`: hearth_tokenizer.json, the model
// or tokenizer.json, and what stands beside it (kCompanionNames). Does nothing when `from` records
// none (a .bin file, kind "none").
absl::Status CopyTokenizer(const std::string& from, const std::string& to, Env& env = Env::Real());

// What hearth_tokenizer.json of a checkpoint folder or dataset.json of a dataset folder says of the
// tokenizer; nothing: `dir` has neither. Errors: those of ParseTokenizerInfo and ParseDatasetInfo.
absl::StatusOr<std::optional<TokenizerInfo>> RecordedTokenizer(const std::string& dir,
                                                               Env& env = Env::Real());

}  // namespace hearth::dataset
