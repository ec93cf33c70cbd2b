// A model folder written for other programs: as a Hugging Face folder in another format, or as a
// GGUF file for llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/formats/stored_formats.h"
#include "common/io/checksum.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"
#include "common/weights/model_folder.h"
#include "common/weights/safetensors.h"

namespace hearth::weights {

struct ExportOptions {
  WeightChoice weights = WeightChoice::kStep;                  // of a checkpoint
  const formats::StoredFormat* dtype = &formats::kStoredBf16;  // of matrices
  std::string out;                                             // must not exist yet
  std::string name;             // general.name of a GGUF file; empty = the folder's name
  bool tokenizer = true;        // false: a GGUF file without one
  int threads = FileThreads();  // the bytes do not depend on it
};

struct Exported {
  int64_t bytes = 0;  // of the weights' file
  int64_t tensors = 0;
  std::vector<std::string> notes;  // for people
};

struct ExportFormat {
  std::string_view name;  // as options take it
  std::string_view help;
  // Writes `dir`, a checkpoint or another Hugging Face model folder, to options.out by a temporary
  // name, tensor by tensor. The name of an error's file and tensor is in its text, and after one
  // nothing is left of options.out. kAlreadyExists: it is there; kUnimplemented: the format cannot
  // hold the model; kInvalidArgument, kDataLoss: a tensor is missing or damaged.
  absl::StatusOr<Exported> (*write)(Env& env, const std::string& dir, const ExportOptions& options);
};

extern const ExportFormat kHfExport;
extern const ExportFormat kGgufExport;
inline constexpr const ExportFormat* kExportFormats[] = {&kHfExport, &kGgufExport};

// Compares the files of `dir` with the checksums that its MANIFEST.json records, if it has one, and
// exports it. Thread-safe; `verifier` as well.
absl::StatusOr<Exported> ExportModel(Env& env,
                                     const FileVerifier& verifier,
                                     const std::string& dir,
                                     const ExportFormat& format,
                                     const ExportOptions& options);

// Compares the files of `dir` that hold these weights with the checksums that its MANIFEST.json
// records. kDataLoss names the one that differs.
absl::Status Verify(Env& env,
                    const FileVerifier& verifier,
                    const std::string& dir,
                    WeightChoice choice = WeightChoice::kStep);

// Elements [begin, begin + out.size()) of tensor `index`. Called from several threads at a time.
using ReadTensor = std::function<void(size_t index, int64_t begin, absl::Span<float> out)>;

// A Hugging Face folder at options.out: configuration and tokenizer of `folder`, and weights with
// the names and shapes of `tensors`. `read` gives the values of those in F32, BF16 and F16; others
// are copied. Errors as kHfExport.
absl::StatusOr<Exported> WriteHfFolder(Env& env,
                                       const ModelFolder& folder,
                                       const std::vector<const TensorView*>& tensors,
                                       const ReadTensor& read,
                                       const ExportOptions& options);

// What a folder written beside the weights also gets, if `from` has it: tokenizer and settings of
// generation. Errors: those of Env.
absl::Status CopyCompanions(Env& env, const std::string& from, const std::string& to);

}  // namespace hearth::weights
