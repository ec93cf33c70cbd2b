#include "common/weights/gguf_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/dataset/format.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/formats/codecs.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/scanner.h"
#include "common/tokenizer/tokenizer_file.h"
#include "common/tokenizer/tokenizer_kind.h"
#include "google/protobuf/unknown_field_set.h"
#include "nlohmann/json.hpp"

namespace hearth::weights {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using tokenizer::TokenizerKind;

// enum llama_token_type, and the types of sentencepiece's pieces.
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

struct Tokens {
  std::string model;
  std::string pre = "default";
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;                       // sentencepiece only
  std::optional<std::vector<std::string>> merges;  // "gpt2" only
  std::map<std::string, int64_t> ids;              // "eos" ...; those there are
  bool add_bos = false;
  bool add_eos = false;
  GgufMetadata more;
};

// How llama.cpp names the expressions that cut text, by the way merges are read.
struct PreRow {
  tokenizer::ScannerKind kind;
  bool ignore_merges;
  std::string_view name;
};
constexpr PreRow kPres[] = {
    {tokenizer::ScannerKind::kGpt2, false, "gpt-2"},
    {tokenizer::ScannerKind::kLlama3, true, "llama-bpe"},
    {tokenizer::ScannerKind::kLlama3, false, "smaug-bpe"},
    {tokenizer::ScannerKind::kQwen2, false, "qwen2"},
};

absl::StatusOr<std::string> PreOf(const tokenizer::TokenizerFile& file, const std::string& path) {
  if (file.prefix_space) {
    return absl::UnimplementedError(
        absl::StrCat(path, ": add_prefix_space: llama.cpp has no such option for BPE"));
  }
  if (file.steps.size() == 1 && file.steps[0].kind == tokenizer::PreTokenizerStep::Kind::kPattern) {
    for (const tokenizer::ScannerRow& scanner : tokenizer::Scanners()) {
      for (const PreRow& row : kPres) {
        if (scanner.pattern == file.steps[0].pattern && row.kind == scanner.kind &&
            row.ignore_merges == file.ignore_merges) {
          return std::string(row.name);
        }
      }
    }
  }
  return absl::UnimplementedError(absl::StrCat(
      path,
      ": pre_tokenizer: llama.cpp knows expressions by name, and this one is none of GPT-2, "
      "Llama-3 and Qwen2"));
}

// tokenizer_config.json; an empty object when there is none.
absl::StatusOr<nlohmann::json> ReadConfig(Env& env, const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", std::string(dataset::kTokenizerConfigName));
  if (!env.Exists(path)) {
    return nlohmann::json::object();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(path));
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  }
  return json;
}

// Ids of the tokens that the configuration names, flags, and the chat template.
void TakeConfig(const nlohmann::json& config, Tokens& tokens) {
  const struct {
    const char* key;
    const char* name;
  } named_tokens[] = {{"bos_token", "bos"},
                      {"eos_token", "eos"},
                      {"unk_token", "unknown"},
                      {"pad_token", "padding"}};
  for (const auto& named : named_tokens) {
    const auto found = config.find(named.key);
    const nlohmann::json value = found == config.end() ? nlohmann::json()
                                 : found->is_object()  ? found->value("content", nlohmann::json())
                                                       : *found;
    if (!value.is_string()) {
      continue;
    }
    const auto token =
        std::find(tokens.texts.begin(), tokens.texts.end(), value.get<std::string>());
    if (token != tokens.texts.end()) {
      tokens.ids[named.name] = token - tokens.texts.begin();
    }
  }
  const auto flag = [&config](const char* key, bool& value) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_boolean()) {
      value = found->get<bool>();
    }
  };
  flag("add_bos_token", tokens.add_bos);
  flag("add_eos_token", tokens.add_eos);
  const auto chat = config.find("chat_template");
  if (chat != config.end() && chat->is_string()) {
    tokens.more.emplace_back("tokenizer.chat_template", chat->get<std::string>());
  }
}

absl::StatusOr<Tokens> BytesTokens(const std::string& /*bytes*/, const std::string& /*path*/) {
  Tokens tokens;
  tokens.model = "gpt2";
  tokens.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    tokens.texts.push_back(tokenizer::NameOfBytes(std::string(1, static_cast<char>(byte))));
    tokens.types.push_back(kNormal);
  }
  tokens.texts.emplace_back("<|endoftext|>");
  tokens.types.push_back(kControl);
  tokens.ids["eos"] = 256;
  tokens.merges.emplace();
  return tokens;
}

absl::StatusOr<Tokens> BpeTokens(const std::string& bytes_of_file, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const tokenizer::TokenizerFile file,
                          tokenizer::ParseTokenizerFile(bytes_of_file, path));
  Tokens tokens;
  tokens.model = "gpt2";
  HEARTH_ASSIGN_OR_RETURN(tokens.pre, PreOf(file, path));
  const std::set<int32_t> nameable(file.nameable.begin(), file.nameable.end());
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    const std::string& bytes = file.tokens[id];
    tokens.texts.push_back(bytes.empty() ? absl::StrCat("[PAD", id, "]")
                           : nameable.contains(static_cast<int32_t>(id))
                               ? tokenizer::NameOfBytes(bytes)
                               : bytes);
    tokens.types.push_back(bytes.empty() ? kUnused : kNormal);
  }
  for (const tokenizer::AddedToken& added : file.added) {
    const auto id = static_cast<size_t>(added.id);
    tokens.texts[id] = added.content;
    tokens.types[id] = added.special ? kControl : kUserDefined;
  }
  tokens.merges.emplace();
  for (const tokenizer::Merge& merge : file.merges) {
    tokens.merges->push_back(
        absl::StrCat(tokenizer::NameOfBytes(file.tokens[static_cast<size_t>(merge.left)]), " ",
                     tokenizer::NameOfBytes(file.tokens[static_cast<size_t>(merge.right)])));
  }
  tokens.add_bos = !file.prefix.empty();
  tokens.add_eos = !file.suffix.empty();
  return tokens;
}

// A field of a message that was parsed without its description; nullptr when absent. The last
// counts.
const UnknownField* Find(const UnknownFieldSet& message, int number, UnknownField::Type type) {
  const UnknownField* found = nullptr;
  for (int i = 0; i < message.field_count(); ++i) {
    const UnknownField& field = message.field(i);
    if (field.number() == number && field.type() == type) {
      found = &field;
    }
  }
  return found;
}

int64_t Varint(const UnknownFieldSet& message, int number, int64_t absent) {
  const UnknownField* field = Find(message, number, UnknownField::TYPE_VARINT);
  return field == nullptr ? absent : static_cast<int64_t>(field->varint());
}

// The sub-message `number` of sentencepiece's ModelProto; empty when absent.
bool Part(const UnknownFieldSet& model, int number, UnknownFieldSet& part) {
  const UnknownField* field = Find(model, number, UnknownField::TYPE_LENGTH_DELIMITED);
  return field == nullptr || part.ParseFromString(field->length_delimited());
}

// Field numbers are those of sentencepiece_model.proto.
absl::StatusOr<Tokens> SentencePieceTokens(const std::string& bytes, const std::string& path) {
  constexpr int kPieces = 1;
  constexpr int kTrainer = 2;
  constexpr int kNormalizer = 3;
  const auto damaged = [&path](std::string_view what) {
    return absl::DataLossError(
        absl::StrCat(path, ": not a sentencepiece model: ", std::string(what)));
  };
  UnknownFieldSet model;
  UnknownFieldSet trainer;
  UnknownFieldSet normalizer;
  if (!model.ParseFromString(bytes) || !Part(model, kTrainer, trainer) ||
      !Part(model, kNormalizer, normalizer)) {
    return damaged("not a message");
  }
  Tokens tokens;
  for (int i = 0; i < model.field_count(); ++i) {
    if (model.field(i).number() != kPieces) {
      continue;
    }
    UnknownFieldSet piece;
    if (model.field(i).type() != UnknownField::TYPE_LENGTH_DELIMITED ||
        !piece.ParseFromString(model.field(i).length_delimited())) {
      return damaged(absl::StrCat("piece ", tokens.texts.size()));
    }
    const UnknownField* text = Find(piece, 1, UnknownField::TYPE_LENGTH_DELIMITED);
    const UnknownField* score = Find(piece, 2, UnknownField::TYPE_FIXED32);
    tokens.texts.push_back(text == nullptr ? "" : text->length_delimited());
    tokens.scores.push_back(score == nullptr ? 0.0F : formats::BitsFloat(score->fixed32()));
    tokens.types.push_back(static_cast<int32_t>(Varint(piece, 3, kNormal)));
  }
  if (tokens.texts.empty()) {
    return damaged("no pieces");
  }
  constexpr int64_t kUnigram = 1;
  constexpr int64_t kBpe = 2;
  const int64_t type = Varint(trainer, 3, kUnigram);
  if (type != kUnigram && type != kBpe) {
    return absl::UnimplementedError(
        absl::StrCat(path, ": llama.cpp has only sentencepiece models of type unigram and bpe"));
  }
  tokens.model = type == kBpe ? "llama" : "t5";
  tokens.more.emplace_back("tokenizer.ggml.add_space_prefix", Varint(normalizer, 3, 1) != 0);
  tokens.more.emplace_back("tokenizer.ggml.remove_extra_whitespaces",
                           Varint(normalizer, 4, 1) != 0);
  const UnknownField* map = Find(normalizer, 2, UnknownField::TYPE_LENGTH_DELIMITED);
  if (map != nullptr && !map->length_delimited().empty()) {
    if (type == kBpe) {
      return absl::UnimplementedError(
          absl::StrCat(path, ": normalizer: llama.cpp normalises only text of unigram models"));
    }
    const std::string& text = map->length_delimited();
    tokens.more.emplace_back("tokenizer.ggml.precompiled_charsmap",
                             std::vector<uint8_t>(text.begin(), text.end()));
  }
  const std::pair<const char*, int64_t> ids[] = {{"unknown", Varint(trainer, 40, 0)},
                                                 {"bos", Varint(trainer, 41, 1)},
                                                 {"eos", Varint(trainer, 42, 2)},
                                                 {"padding", Varint(trainer, 43, -1)}};
  for (const auto& [name, id] : ids) {
    // -1 = none, which a varint of 32 bits may hold as a large number.
    if (id >= 0 && id < static_cast<int64_t>(tokens.texts.size())) {
      tokens.ids[name] = id;
    }
  }
  return tokens;
}

// How the tokens of each kind are read, from the bytes of its file (empty: it has none) and the
// file's path for errors. Where a folder records no kind, the first whose file is there counts.
struct TokensReader {
  TokenizerKind kind;
  absl::StatusOr<Tokens> (*read)(const std::string& bytes, const std::string& path);
};
constexpr TokensReader kTokensReaders[] = {
    {TokenizerKind::kBytes, BytesTokens},
    {TokenizerKind::kSentencePiece, SentencePieceTokens},
    {TokenizerKind::kBpe, BpeTokens},
};

// The kind and file that the folder records, else those of a file with a usual name.
absl::StatusOr<dataset::TokenizerInfo> FindTokenizer(Env& env, const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<dataset::TokenizerInfo> recorded,
                          dataset::RecordedTokenizer(dir, env));
  dataset::TokenizerInfo info = recorded.value_or(dataset::TokenizerInfo());
  if (info.known()) {
    return info;
  }
  for (const TokensReader& reader : kTokensReaders) {
    const std::string file(tokenizer::RowOf(reader.kind).file);
    if (!file.empty() && env.Exists(absl::StrCat(dir, "/", file))) {
      info.kind = reader.kind;
      info.file = file;
      return info;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      dir, ": no tokenizer (hearth_tokenizer.json, tokenizer.model or tokenizer.json)"));
}

absl::StatusOr<Tokens> ReadTokens(Env& env, const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const dataset::TokenizerInfo info, FindTokenizer(env, dir));
  const TokensReader* const reader = FindRow(kTokensReaders, &TokensReader::kind, info.kind);
  HEARTH_CHECK(reader != nullptr, "every kind that may be recorded has a reader");
  const std::string path = absl::StrCat(dir, "/", info.file);
  std::string bytes;
  if (!info.file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(bytes, env.ReadFile(path));
  }
  HEARTH_ASSIGN_OR_RETURN(Tokens tokens, reader->read(bytes, path));
  HEARTH_ASSIGN_OR_RETURN(const nlohmann::json config, ReadConfig(env, dir));
  TakeConfig(config, tokens);
  // What the model was trained with goes before what its configuration says.
  if (info.eos >= 0) {
    tokens.ids["eos"] = info.eos;
  }
  return tokens;
}

// `tokens` with unused ones up to `vocab`.
GgufTokenizer Describe(Tokens tokens, int64_t vocab) {
  const auto have = static_cast<int64_t>(tokens.texts.size());
  GgufTokenizer out;
  if (have < vocab) {
    out.notes.push_back(absl::StrCat("the model has ", vocab - have,
                                     " more tokens than the tokenizer; they are unused ones"));
  }
  for (int64_t id = have; id < vocab; ++id) {
    tokens.texts.push_back(absl::StrCat("[PAD", id, "]"));
    tokens.types.push_back(kUnused);
    if (!tokens.scores.empty()) {
      tokens.scores.push_back(-1000.0F);
    }
  }
  GgufMetadata& metadata = out.metadata;
  metadata.emplace_back("tokenizer.ggml.model", tokens.model);
  metadata.emplace_back("tokenizer.ggml.pre", tokens.pre);
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  if (!tokens.scores.empty()) {
    metadata.emplace_back("tokenizer.ggml.scores", std::move(tokens.scores));
  }
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  if (tokens.merges.has_value()) {
    metadata.emplace_back("tokenizer.ggml.merges", *std::move(tokens.merges));
  }
  for (const auto& [name, id] : tokens.ids) {
    if (id < vocab) {
      metadata.emplace_back(absl::StrCat("tokenizer.ggml.", name, "_token_id"),
                            static_cast<uint32_t>(id));
    }
  }
  metadata.emplace_back("tokenizer.ggml.add_bos_token", tokens.add_bos);
  metadata.emplace_back("tokenizer.ggml.add_eos_token", tokens.add_eos);
  for (auto& more : tokens.more) {
    metadata.push_back(std::move(more));
  }
  return out;
}

}  // namespace

GgufMetadata NoTokenizer() {
  return {{"tokenizer.ggml.model", std::string("none")}};
}

absl::StatusOr<GgufTokenizer> DescribeTokenizer(Env& env, const std::string& dir, int64_t vocab) {
  HEARTH_ASSIGN_OR_RETURN(Tokens tokens, ReadTokens(env, dir));
  const auto have = static_cast<int64_t>(tokens.texts.size());
  if (have > vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": the tokenizer has ", have, " tokens, the model ", vocab));
  }
  return Describe(std::move(tokens), vocab);
}

absl::StatusOr<GgufTokenizer> DescribeSentencePiece(const std::string& bytes,
                                                    const std::string& file_name) {
  HEARTH_ASSIGN_OR_RETURN(Tokens tokens, SentencePieceTokens(bytes, file_name));
  const auto have = static_cast<int64_t>(tokens.texts.size());
  return Describe(std::move(tokens), have);
}

}  // namespace hearth::weights
