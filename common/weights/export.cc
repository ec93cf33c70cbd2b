#include "common/weights/export.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/tokenizer/tokenizer_kind.h"
#include "common/weights/gguf_file.h"
#include "common/weights/gguf_model.h"
#include "common/weights/gguf_tokenizer.h"
#include "common/weights/manifest.h"
#include "common/weights/model_folder.h"
#include "common/weights/safetensors.h"
#include "common/weights/stored_blocks.h"
#include "nlohmann/json.hpp"

namespace hearth::weights {
namespace {

constexpr std::string_view kCompanions[] = {dataset::kTokenizerFileName,
                                            tokenizer::kBpeFileName,
                                            dataset::kTokenizerConfigName,
                                            tokenizer::kSentencePieceFileName,
                                            "vocab.json",
                                            "merges.txt",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "generation_config.json",
                                            "chat_template.jinja"};

std::string Join(const std::string& dir, std::string_view name) {
  return absl::StrCat(dir, "/", std::string(name));
}

TensorDType DTypeOf(const formats::StoredFormat& format) {
  return &format == &formats::kStoredF32   ? TensorDType::kF32
         : &format == &formats::kStoredF16 ? TensorDType::kF16
                                           : TensorDType::kBF16;
}

// The configuration with the weights' new format; all else as it is.
std::string ConfigWithFormat(const std::string& text, const formats::StoredFormat& format) {
  auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  // Newer files say dtype.
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = std::string(format.torch);
  return json.dump(2) + "\n";
}

// Bytes [begin, begin + out.size()) of a tensor in another format.
void Convert(const ReadTensor& read,
             size_t index,
             const formats::StoredFormat& format,
             int64_t begin,
             absl::Span<uint8_t> out) {
  constexpr int64_t kBatch = int64_t{1} << 16;
  const int64_t end = begin + static_cast<int64_t>(out.size());
  const int64_t last = (end + format.block_bytes - 1) / format.block_bytes;
  std::vector<float> values(static_cast<size_t>(kBatch));
  std::vector<uint8_t> encoded(static_cast<size_t>(kBatch * format.block_bytes));
  for (int64_t i = begin / format.block_bytes; i < last; i += kBatch) {
    const int64_t count = std::min(kBatch, last - i);
    read(index, i, absl::MakeSpan(values.data(), static_cast<size_t>(count)));
    format.encode(values.data(), count, encoded.data());
    const int64_t from = std::max(begin, i * format.block_bytes);
    const int64_t to = std::min(end, (i + count) * format.block_bytes);
    std::memcpy(out.data() + (from - begin), encoded.data() + (from - i * format.block_bytes),
                static_cast<size_t>(to - from));
  }
}

absl::Status WriteFolder(Env& env,
                         const ModelFolder& folder,
                         const std::vector<const TensorView*>& tensors,
                         const ReadTensor& read,
                         const ExportOptions& options,
                         const std::string& to,
                         Exported& done) {
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(to));
  std::vector<TensorEntry> entries;
  for (const TensorView* tensor : tensors) {
    entries.push_back({tensor->name,
                       IsFloat(tensor->dtype) ? DTypeOf(*options.dtype) : tensor->dtype,
                       tensor->shape});
  }
  const auto fill = [&](size_t index, int64_t begin, absl::Span<uint8_t> out) {
    const TensorView& tensor = *tensors[index];
    if (IsFloat(tensor.dtype)) {
      Convert(read, index, *options.dtype, begin, out);
    } else {
      std::memcpy(out.data(), static_cast<const uint8_t*>(tensor.data) + begin, out.size());
    }
    return absl::OkStatus();
  };
  // transformers refuses weights without "format" in their metadata.
  HEARTH_ASSIGN_OR_RETURN(const FileFacts facts,
                          WriteSafetensors(env, Join(to, kHfWeightsFile), entries,
                                           {{"format", "pt"}}, fill, options.threads));
  done.bytes = facts.bytes;
  done.tensors = static_cast<int64_t>(entries.size());
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(Join(to, kHfConfigFile),
                                                 ConfigWithFormat(folder.config, *options.dtype)));
  HEARTH_RETURN_IF_ERROR(CopyCompanions(env, folder.dir, to));
  return env.SyncDir(to);
}

absl::StatusOr<Exported> WriteHf(Env& env, const std::string& dir, const ExportOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> folder,
                          OpenModelFolder(env, dir, options.weights));
  const std::vector<const TensorView*> tensors = folder->weights->files().Tensors();
  return WriteHfFolder(
      env, *folder, tensors,
      [&](size_t index, int64_t begin, absl::Span<float> out) {
        folder->weights->ReadTensor(*tensors[index], begin, out);
      },
      options);
}

// Rows of a GGUF tensor. A vector is one row there and a row for each element here.
void ReadGgufRows(const WeightReader& weights,
                  const GgufSource& source,
                  int64_t first,
                  int64_t rows,
                  float* out) {
  const bool vector = source.tensor.shape.size() == 1;
  const int64_t columns = vector ? 1 : source.tensor.columns();
  const int64_t begin = vector ? 0 : first;
  const int64_t count = vector ? source.tensor.columns() : rows;
  if (source.parameter < 0) {
    std::copy(source.values.begin(), source.values.end(), out);
    return;
  }
  const auto k = static_cast<size_t>(source.parameter);
  if (source.head_dim == 0) {
    weights.ReadRows(k, source.RowOf(begin), count, out);
    return;
  }
  for (int64_t row = begin; row < begin + count; ++row, out += columns) {
    weights.ReadRows(k, source.RowOf(row), 1, out);
  }
}

absl::StatusOr<Exported> WriteGgufFile(Env& env,
                                       const std::string& dir,
                                       const ExportOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> folder,
                          OpenModelFolder(env, dir, options.weights));
  HEARTH_ASSIGN_OR_RETURN(GgufModel model,
                          DescribeGguf(folder->shape, folder->table, *options.dtype));
  GgufTokenizer tokenizer;
  tokenizer.metadata = NoTokenizer();
  if (options.tokenizer) {
    HEARTH_ASSIGN_OR_RETURN(tokenizer, DescribeTokenizer(env, dir, folder->shape.vocab));
  }
  GgufMetadata metadata = std::move(model.metadata);
  const std::filesystem::path path = std::filesystem::path(dir).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  metadata.insert(metadata.begin() + 1,
                  {"general.name", options.name.empty() ? name : options.name});
  metadata.insert(metadata.end(), tokenizer.metadata.begin(), tokenizer.metadata.end());
  std::vector<GgufTensor> tensors;
  for (const GgufSource& source : model.tensors) {
    tensors.push_back(source.tensor);
  }
  const auto fill = [&](size_t index, int64_t first, int64_t rows, float* out) {
    ReadGgufRows(*folder->weights, model.tensors[index], first, rows, out);
    return absl::OkStatus();
  };
  HEARTH_ASSIGN_OR_RETURN(const StoredBlocks blocks,
                          StoredBlocks::Open(env, dir, folder->table, *options.dtype));
  const bool copies = options.weights == WeightChoice::kStep && blocks.tensors() > 0;
  const auto encoded = [&](size_t index, int64_t row, int64_t begin, absl::Span<uint8_t> out) {
    const GgufSource& source = model.tensors[index];
    const bool own = source.parameter >= 0 && source.tensor.format == options.dtype;
    return own && blocks.Read(static_cast<size_t>(source.parameter), source.RowOf(row), begin, out);
  };
  Exported done;
  done.notes = std::move(model.notes);
  if (copies) {
    done.notes.push_back(absl::StrCat(blocks.tensors(), " matrices were trained in ",
                                      std::string(options.dtype->name),
                                      ": their blocks are written as they are"));
  }
  done.notes.insert(done.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  done.tensors = static_cast<int64_t>(tensors.size());
  HEARTH_RETURN_IF_ERROR(
      WriteInPlace(env, options.out, [&](const std::string& temporary) -> absl::Status {
        HEARTH_ASSIGN_OR_RETURN(const FileFacts facts,
                                WriteGguf(env, temporary, metadata, tensors, fill, options.threads,
                                          copies ? encoded : EncodedRow()));
        done.bytes = facts.bytes;
        return absl::OkStatus();
      }));
  return done;
}

}  // namespace

constinit const ExportFormat kHfExport = {
    "hf", "a Hugging Face folder of the same class: config.json, model.safetensors, tokenizer",
    WriteHf};
constinit const ExportFormat kGgufExport = {
    "gguf", "one file for llama.cpp and what is built on it, tokenizer included", WriteGgufFile};

absl::StatusOr<Exported> ExportModel(Env& env,
                                     const FileVerifier& verifier,
                                     const std::string& dir,
                                     const ExportFormat& format,
                                     const ExportOptions& options) {
  // The weights may then come from state/, as the average does.
  HEARTH_ASSIGN_OR_RETURN(const bool blocks, HasStoredBlocks(env, dir, *options.dtype));
  HEARTH_RETURN_IF_ERROR(Verify(env, verifier, dir, blocks ? WeightChoice::kEma : options.weights));
  return format.write(env, dir, options);
}

absl::StatusOr<Exported> WriteHfFolder(Env& env,
                                       const ModelFolder& folder,
                                       const std::vector<const TensorView*>& tensors,
                                       const ReadTensor& read,
                                       const ExportOptions& options) {
  if (options.dtype->torch.empty()) {
    return absl::UnimplementedError(absl::StrCat("safetensors files have no format ",
                                                 std::string(options.dtype->name),
                                                 "; --format gguf has"));
  }
  Exported done;
  HEARTH_RETURN_IF_ERROR(WriteInPlace(env, options.out, [&](const std::string& temporary) {
    return WriteFolder(env, folder, tensors, read, options, temporary, done);
  }));
  return done;
}

absl::Status Verify(Env& env,
                    const FileVerifier& verifier,
                    const std::string& dir,
                    WeightChoice choice) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> recorded,
                          RecordedModelFiles(env, dir, choice));
  return verifier.Verify(recorded);
}

absl::Status CopyCompanions(Env& env, const std::string& from, const std::string& to) {
  for (const std::string_view name : kCompanions) {
    if (!env.Exists(Join(from, name))) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(Join(from, name)));
    HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(Join(to, name), text));
  }
  return absl::OkStatus();
}

}  // namespace hearth::weights
