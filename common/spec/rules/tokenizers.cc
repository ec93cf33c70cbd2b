#include <algorithm>
#include <string>

#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"
#include "common/tokenizer/tokenizer_kind.h"

namespace hearth::spec {
namespace {

// Models' vocabularies are padded: of the released ones by at most 905 tokens (Phi-2).
constexpr int32_t kMaxPadding = 1024;

bool SameTokens(const v1::TokenizerFacts& a, const v1::TokenizerFacts& b) {
  if (a.sha256() == b.sha256() && (!a.sha256().empty() || a.kind() == b.kind())) {
    return true;
  }
  // The same tokenizer, written by other programs.
  const tokenizer::TokenizerKindRow* const kind = tokenizer::FindTokenizerKind(a.kind());
  return kind != nullptr && kind->probed && a.kind() == b.kind() && a.vocab() == b.vocab() &&
         a.probe_size() > 0 &&
         std::equal(a.probe().begin(), a.probe().end(), b.probe().begin(), b.probe().end());
}

bool Differ(const PathTokenizer& data, const PathTokenizer& reference) {
  if (!data.tokenizer.kind().empty() && !reference.tokenizer.kind().empty()) {
    return !SameTokens(data.tokenizer, reference.tokenizer);
  }
  // A vocabulary that is too large for the model is another error.
  return reference.field == "model.from" && data.vocab > 0 &&
         reference.vocab - data.vocab > kMaxPadding;
}

std::string Describe(const PathTokenizer& path) {
  const v1::TokenizerFacts& tokenizer = path.tokenizer;
  if (tokenizer.kind().empty()) {
    return Text("no tokenizer and a vocabulary of ", path.vocab);
  }
  std::string text = "the tokenizer ";
  const bool read = tokenizer.kind() != tokenizer::NameOf(tokenizer::TokenizerKind::kOther);
  if (read) {
    text += tokenizer.kind();
  }
  if (!tokenizer.file().empty()) {
    text += Text(read ? ", " : "", tokenizer.file(), " with SHA-256 ",
                 tokenizer.sha256().substr(0, 12), "...");
  }
  return tokenizer.vocab() > 0 ? Text(text, " (", tokenizer.vocab(), " tokens)") : text;
}

// How `jobctl dataset build` gets this tokenizer; empty: not known.
std::string BuildOption(const PathTokenizer& path) {
  const tokenizer::TokenizerKindRow* const kind =
      tokenizer::FindTokenizerKind(path.tokenizer.kind());
  if (kind == nullptr || !kind->recorded) {
    return "";
  }
  return kind->file.empty() ? std::string(kind->name) : Text(path.path, '/', path.tokenizer.file());
}

}  // namespace

void CheckTokenizers(const v1::JobSpec& job, const DataFacts& facts, Checker& check) {
  if (job.data().allow_other_tokenizer()) {
    return;
  }
  const auto first =
      std::find_if(facts.datasets.begin(), facts.datasets.end(),
                   [](const PathTokenizer& data) { return !data.tokenizer.kind().empty(); });
  if (!facts.model.has_value() && first == facts.datasets.end()) {
    return;
  }
  const PathTokenizer& reference = facts.model.has_value() ? *facts.model : *first;
  for (const PathTokenizer& data : facts.datasets) {
    if (!Differ(data, reference)) {
      continue;
    }
    const std::string option = BuildOption(reference);
    check.Add(data.field,
              Text(data.path, " has ", Describe(data), ", ", reference.field, ' ', reference.path,
                   " has ", Describe(reference), ": the same numbers are other tokens; build the ",
                   "dataset with the same tokenizer",
                   option.empty() ? "" : Text(" (--tokenizer ", option, ')'),
                   ", or set data.allow_other_tokenizer: true"));
  }
}

}  // namespace hearth::spec
