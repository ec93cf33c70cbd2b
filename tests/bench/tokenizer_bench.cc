// How fast tokenizers are: MB of text a second.
//   bench_tokenizer TOKENIZER FILE [THREADS]
// TOKENIZER is one of the forms of `jobctl dataset build --tokenizer`; FILE is cut into documents
// of about 64 KiB at line ends. Each thread encodes its share, three times; the best counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/io/env.h"

namespace {

constexpr size_t kDocumentBytes = size_t{64} << 10;

std::vector<std::string> Documents(const std::string& text) {
  std::vector<std::string> documents;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = text.find('\n', std::min(text.size(), at + kDocumentBytes));
    const size_t end = line_end == std::string::npos ? text.size() : line_end + 1;
    documents.push_back(text.substr(at, end - at));
    at = end;
  }
  return documents;
}

// Tokens of all documents; -1 after an error.
int64_t EncodeAll(hearth::dataset::Tokenizer& tokenizer,
                  const std::vector<std::string>& documents,
                  size_t threads) {
  std::vector<int64_t> tokens(threads, 0);
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (size_t i = t; i < documents.size(); i += threads) {
        const auto ids = tokenizer.Encode(documents[i]);
        if (!ids.ok()) {
          std::fprintf(stderr, "%s\n", ids.status().ToString().c_str());
          tokens[t] = -1;
          return;
        }
        tokens[t] += static_cast<int64_t>(ids->size());
      }
    });
  }
  int64_t sum = 0;
  for (size_t t = 0; t < threads; ++t) {
    workers[t].join();
    sum = sum < 0 || tokens[t] < 0 ? -1 : sum + tokens[t];
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_tokenizer TOKENIZER FILE [THREADS]\n");
    return 2;
  }
  hearth::Env& env = hearth::Env::Real();
  const auto text = env.ReadFile(argv[2]);
  const auto choice = hearth::dataset::ParseTokenizerChoice(argv[1], env);
  if (!text.ok() || !choice.ok()) {
    std::fprintf(stderr, "%s\n", (text.ok() ? choice.status() : text.status()).ToString().c_str());
    return 1;
  }
  const size_t threads = argc > 3 ? static_cast<size_t>(std::max(1, std::atoi(argv[3]))) : 1;
  const auto chosen = hearth::dataset::ChooseTokenizer(
      *choice, "", {[&](int64_t, const auto& work, const auto& commit) {
        work(*text);
        commit(*text);
        return absl::OkStatus();
      }},
      env);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", chosen.status().ToString().c_str());
    return 1;
  }
  const std::vector<std::string> documents = Documents(*text);
  double best = 0;
  int64_t tokens = 0;
  for (int run = 0; run < 3; ++run) {
    const absl::Time start = absl::Now();
    tokens = EncodeAll(*chosen->tokenizer, documents, threads);
    if (tokens < 0) {
      return 1;
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    best = std::max(best, static_cast<double>(text->size()) / seconds / 1e6);
  }
  std::printf("%s threads %zu bytes %zu tokens %lld MB/s %.1f\n", argv[1], threads, text->size(),
              static_cast<long long>(tokens), best);
  return 0;
}
