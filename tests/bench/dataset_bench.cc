// How fast text becomes tokens: MB of input a second, of tokenizers alone and of whole builds of
// datasets, with one thread and with two, and seconds of CPU time, which other programs on the
// machine disturb less.
//   bench_dataset [--folder DIR] [--mb 125] [--runs 3] [--threads 1,2]
//                 [--tokenizers bytes,bpe:8192] [--files text.jsonl,text.txt]
//                 [--parts tokenizer,build] [--file FILE]
// The text is made (made_text.h) and kept in DIR. Tokenizers: the forms of `jobctl dataset build
// --tokenizer`; one to be trained is trained on 8 MB of the text before anything is timed. --file
// takes another text file for the tokenizers alone. A figure is the median of the runs, with the
// slowest and the fastest in brackets.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/dataset/build/build.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/io/env.h"
#include "common/time/clock.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/made_text.h"

namespace hearth::dataset {
namespace {

constexpr size_t kDocumentBytes = size_t{64} << 10;
constexpr int64_t kTrainingBytes = int64_t{8} << 20;

struct Choice {
  std::string folder;
  int64_t mb = 125;
  int runs = 3;
  std::vector<int> threads = {1, 2};
  std::vector<std::string> tokenizers = {"bytes", "bpe:8192"};
  std::vector<std::string> files = {"text.jsonl", "text.txt"};
  std::vector<std::string> parts = {"tokenizer", "build"};
  std::string file;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Runs `work` several times for each number of threads, each time after `prepare`, and prints a
// line each.
absl::Status Time(const Choice& choice,
                  const std::string& what,
                  int64_t bytes,
                  const std::function<absl::Status()>& prepare,
                  const std::function<absl::Status(int threads)>& work) {
  double first = 0;
  for (const int threads : choice.threads) {
    std::vector<double> walls;
    std::vector<double> cpus;
    for (int run = 0; run < choice.runs; ++run) {
      HEARTH_RETURN_IF_ERROR(prepare());
      const absl::Duration start = Clock::Real().Monotonic();
      const double cpu_start = CpuSeconds();
      HEARTH_RETURN_IF_ERROR(work(threads));
      walls.push_back(absl::FDivDuration(Clock::Real().Monotonic() - start, absl::Seconds(1)));
      cpus.push_back(CpuSeconds() - cpu_start);
    }
    std::sort(walls.begin(), walls.end());
    std::sort(cpus.begin(), cpus.end());
    const double wall = walls[walls.size() / 2];
    first = first == 0 ? wall : first;
    const double mb = static_cast<double>(bytes) * 1e-6;
    std::printf(
        "%-32s threads %d  %7.1f MB/s (%.1f to %.1f)  %5.2f times  %7.1f MB per CPU second\n",
        what.c_str(), threads, mb / wall, mb / walls.back(), mb / walls.front(), first / wall,
        mb / cpus[cpus.size() / 2]);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

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

absl::Status EncodeAll(Tokenizer& tokenizer,
                       const std::vector<std::string>& documents,
                       size_t threads) {
  std::vector<absl::Status> statuses(threads);
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (size_t i = t; i < documents.size(); i += threads) {
        statuses[t].Update(tokenizer.Encode(documents[i]).status());
      }
    });
  }
  absl::Status status;
  for (size_t t = 0; t < threads; ++t) {
    workers[t].join();
    status.Update(statuses[t]);
  }
  return status;
}

absl::Status TimeTokenizer(const Choice& choice, const std::string& name) {
  Env& env = Env::Real();
  const std::string path =
      choice.file.empty() ? absl::StrCat(choice.folder, "/text.txt") : choice.file;
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(path));
  const std::vector<std::string> documents = Documents(text);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          OpenTokenizerIn(absl::StrCat(choice.folder, "/", name), env));
  const auto nothing = [] { return absl::OkStatus(); };
  const auto encode = [&](int threads) {
    return EncodeAll(*tokenizer, documents, static_cast<size_t>(threads));
  };
  return Time(choice, absl::StrCat("tokenizer ", name), static_cast<int64_t>(text.size()), nothing,
              encode);
}

absl::Status TimeBuilds(const Choice& choice, const std::string& name) {
  Env& env = Env::Real();
  BuildOptions options;
  options.field = "text";
  options.out = absl::StrCat(choice.folder, "/out");
  const std::string trained = absl::StrCat(choice.folder, "/", name);
  options.tokenizer = env.Exists(absl::StrCat(trained, "/tokenizer.json")) ? trained : name;
  for (const std::string& file : choice.files) {
    options.inputs = {absl::StrCat(choice.folder, "/", file)};
    HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env.FileSize(options.inputs[0]));
    const auto clear = [&] { return env.RemoveAll(options.out); };
    const auto build = [&](int threads) {
      options.threads = threads;
      return Build(options, env).status();
    };
    HEARTH_RETURN_IF_ERROR(
        Time(choice, absl::StrCat("build ", file, " ", name), bytes, clear, build));
  }
  return env.RemoveAll(options.out);
}

absl::Status Prepare(const Choice& choice) {
  Env& env = Env::Real();
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(choice.folder));
  const std::string text = absl::StrCat(choice.folder, "/text.txt");
  if (!env.Exists(text)) {
    HEARTH_RETURN_IF_ERROR(
        WriteMadeText(choice.mb * 1'000'000, absl::StrCat(choice.folder, "/text.jsonl"), text));
  }
  const std::string sample = absl::StrCat(choice.folder, "/sample.txt");
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> mapped, env.Map(text));
  const absl::Span<const uint8_t> head = mapped->bytes().subspan(0, kTrainingBytes);
  const std::string_view bytes(reinterpret_cast<const char*>(head.data()), head.size());
  HEARTH_RETURN_IF_ERROR(
      env.WriteFileAtomically(sample, bytes.substr(0, bytes.find_last_of('\n') + 1)));
  for (const std::string& name : choice.tokenizers) {
    BuildOptions options;
    options.inputs = {sample};
    options.tokenizer = name;
    options.out = absl::StrCat(choice.folder, "/", name);
    if (!env.Exists(options.out)) {
      HEARTH_RETURN_IF_ERROR(Build(options, env).status());
    }
  }
  return absl::OkStatus();
}

struct Part {
  std::string_view name;
  absl::Status (*time)(const Choice& choice, const std::string& tokenizer);
};
constexpr Part kParts[] = {{"tokenizer", TimeTokenizer}, {"build", TimeBuilds}};

absl::Status Run(const Choice& choice) {
  HEARTH_RETURN_IF_ERROR(Prepare(choice));
  for (const Part& part : kParts) {
    if (std::find(choice.parts.begin(), choice.parts.end(), part.name) != choice.parts.end()) {
      for (const std::string& name : choice.tokenizers) {
        HEARTH_RETURN_IF_ERROR(part.time(choice, name));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth::dataset

// NOLINTNEXTLINE(bugprone-exception-escape): only a failed allocation can escape
int main(int argc, char** argv) {
  hearth::dataset::Choice choice;
  CLI::App app("How fast text becomes tokens");
  app.add_option("--folder", choice.folder);
  app.add_option("--mb", choice.mb)->check(CLI::Range(10, 100'000));
  app.add_option("--runs", choice.runs)->check(CLI::Range(1, 100));
  app.add_option("--threads", choice.threads)->delimiter(',');
  app.add_option("--tokenizers", choice.tokenizers)->delimiter(',');
  app.add_option("--files", choice.files)->delimiter(',');
  app.add_option("--parts", choice.parts)->delimiter(',');
  app.add_option("--file", choice.file);
  CLI11_PARSE(app, argc, argv);
  const hearth::BenchFolder folder("bench_dataset", choice.folder);
  choice.folder = folder.path();
  const absl::Status status = hearth::dataset::Run(choice);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
