// From text files to dataset folders: `jobctl dataset build`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/dataset/format.h"
#include "common/dataset/report/lengths.h"
#include "common/io/env.h"

namespace hearth::dataset {

// How far a build is.
struct BuildProgress {
  std::string_view phase;  // reading | training | encoding
  int64_t done = 0;        // bytes of the input files, as they are on disk
  int64_t total = 0;
};

// "encoding 62 %, 1.2 of 1.9 GB, 85.0 MB/s, 0:08 left". `elapsed`: since the phase began.
std::string ToLine(const BuildProgress& progress, absl::Duration elapsed);

struct BuildOptions {
  // Files, folders, patterns (FindFiles in text_files.h) and "-", standard input; folders
  // recursively, without following links inside them.
  std::vector<std::string> inputs;
  int standard_input = 0;  // file descriptor that "-" reads
  // Format of "-" and of files whose name says none: a row's name of InputFormats()
  // (record_reader.h). Empty: text.
  std::string format;
  // For .jsonl and .csv files (also .gz, .zst): which field is a document; a name, for JSON also
  // names with dots between them.
  std::string field;
  // Documents are conversations in this layout (chat::ChatLayoutNames), one in each line of JSON,
  // and the dataset gets a loss mask. Empty: they are texts.
  std::string chat;
  // Instead of the chat template of the tokenizer's folder: a row's name of chat::NamedTemplates or
  // a file. Empty: that of the folder.
  std::string chat_template;
  int threads = 0;        // 0: one for each CPU. The number changes no byte
  std::string tokenizer;  // one of the forms of TokenizerChoice (choose_tokenizer.h)
  std::string end_token;  // of a given tokenizer.json; empty: its tokenizer_config.json says it
  std::string out;        // folder to create; must be absent or empty
  std::string name;       // default: last component of `out`
  // > 0: documents are split by the hash of their text into <out>/train and <out>/validation; else
  // `out` is the dataset.
  double validation_fraction = 0;
  double fraction = 1;  // (0, 1]: of the documents, chosen by the hash of their text
  // > 0, within [0.5, 1]: documents whose estimated similarity to an earlier one is at least this
  // are dropped (near_duplicates.h). Needs 0.4 KB of memory for each document taken.
  double near_duplicates = 0;
  int64_t max_bytes = 0;   // of text taken; 0 = all. The choice is by hash of the path
  int64_t max_tokens = 0;  // 0 = all; ends at the first document that does not fit
  // Longer documents are skipped; text files are cut instead.
  int64_t max_document_bytes = int64_t{16} << 20;
  int64_t shard_tokens = int64_t{1} << 27;
  int64_t save_bytes = int64_t{256} << 20;         // of text, after which the state is saved
  std::function<void(std::string_view)> progress;  // lines for people; may be empty
  // Often; from any thread, one call at a time. May be empty.
  std::function<void(const BuildProgress&)> on_progress;
};

struct BuildReport {
  struct Output {
    std::string path;
    DatasetInfo info;
  };
  int64_t files = 0;       // taken
  int64_t binary = 0;      // skipped: not UTF-8 text
  int64_t duplicates = 0;  // skipped: same text as an earlier document
  // Skipped: nearly the same text as an earlier one, and one such pair.
  struct NearDuplicate {
    std::string where;    // file, and line unless the document is the whole file
    std::string earlier;  // the same for the one that was taken
    double similarity = 0;
  };
  int64_t near_duplicates = 0;
  NearDuplicate near_example;  // the first one
  int64_t oversized = 0;       // skipped: larger than max_document_bytes, or beyond max_bytes
  int64_t unreadable = 0;      // skipped: no permission
  int64_t empty = 0;           // skipped
  int64_t sampled_out = 0;     // skipped: by `fraction`
  int64_t over_cap = 0;        // skipped: beyond max_tokens
  int64_t bytes = 0;           // of text taken
  int64_t resumed = 0;         // documents that a killed build had encoded
  Lengths lengths;             // of documents taken, in tokens, end token included
  std::vector<Output> outputs;
};

// Each text file (also .gz, .zst) is one document, or several when it is larger than
// max_document_bytes; each line of a .jsonl, each record of a .csv is one. The same input files
// give the same bytes out. A build that fails leaves `out` as it was; one that was killed goes on
// where it was when it is called again with the same options and input files, or begins again, and
// gives the same bytes. kInvalidArgument names the option, or file and position; kNotFound the
// input; kAlreadyExists `out`; kFailedPrecondition: another process builds there.
absl::StatusOr<BuildReport> Build(const BuildOptions& options, Env& env = Env::Real());

std::string ToText(const BuildReport& report);  // several lines, for people

}  // namespace hearth::dataset
