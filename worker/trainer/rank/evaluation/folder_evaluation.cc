#include "worker/trainer/rank/evaluation/folder_evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/spec/data/sample_tables.h"
#include "worker/trainer/data/loader.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kMicroBatch = 8;  // on data
// The length of models that state none, as in lm-evaluation-harness.
constexpr int64_t kDefaultLength = 2048;
// Samples of several short requests are at least so long where the model allows it.
constexpr int64_t kPackedLength = 512;
// Tokens of a micro-batch that keep a device busy.
constexpr int64_t kTokensOnGpu = 32768;
constexpr int64_t kTokensOnCpu = 2048;

absl::Status BeforeBatch(const FolderEvaluationOptions& options) {
  return options.before_batch == nullptr ? absl::OkStatus() : options.before_batch();
}

void BeforePart(const FolderEvaluationOptions& options) {
  if (options.before_part != nullptr) {
    options.before_part();
  }
}

// The error of a batch, with who is to blame for it.
absl::Status BlameBatch(const FolderEvaluationOptions& options,
                        const Engine& engine,
                        const absl::Status& status) {
  const bool data = absl::IsDataLoss(status) || absl::IsOutOfRange(status);
  Blame(options.folder, data              ? v1::EXIT_REASON_BAD_DATA
                        : engine.on_gpu() ? v1::EXIT_REASON_DEVICE
                                          : v1::EXIT_REASON_INTERNAL);
  return status;
}

// The tokenizer that the dataset records; null: none.
absl::StatusOr<std::unique_ptr<dataset::Tokenizer>> TokenizerOf(const dataset::Dataset& data,
                                                                Env& env) {
  if (!data.info().tokenizer.known()) {
    return std::unique_ptr<dataset::Tokenizer>();
  }
  return dataset::OpenTokenizer(data.info().tokenizer, data.path(), env);
}

absl::StatusOr<SourceLoss> Measure(const FolderEvaluationOptions& options,
                                   const std::string& path,
                                   int64_t batches,
                                   Engine& engine,
                                   Env& env) {
  BeforePart(options);
  Blame(options.folder, v1::EXIT_REASON_BAD_DATA);
  const v1::DataSpec& as_trained = engine.options().spec.data();
  LoaderOptions data;
  data.sources.push_back({path, 1.0});
  data.sequence_length = as_trained.sequence_length();
  data.vocab = static_cast<int32_t>(engine.shape().vocab);
  data.shuffle = false;
  data.packing = spec::PackingOf(as_trained);
  data.documents = engine.documents();
  data.loss_tokens = LossTokens::kMaskedWhereKnown;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, Loader::Open(data, env));
  if (options.verify != nullptr) {
    HEARTH_RETURN_IF_ERROR(options.verify(loader->RecordedFiles()));
  }
  int64_t samples = loader->samples_of_pass();
  if (batches > 0) {
    samples = std::min(samples, batches * engine.options().micro_batch);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          TokenizerOf(loader->source(0), env));
  absl::StatusOr<SourceLoss> loss = MeasureSource(engine, *loader, tokenizer.get(), samples,
                                                  [&options] { return BeforeBatch(options); });
  return loss.ok() ? loss : BlameBatch(options, engine, loss.status());
}

// Samples no longer than what is asked, as many as keep the device busy and no more than needed.
void Shape(const Evaluation& evaluation,
           int64_t micro_batch,
           int64_t most,
           ForwardModelOptions& folder) {
  constexpr int64_t kMultiple = 64;
  const int64_t longest = std::max(evaluation.longest(), kPackedLength);
  const int64_t length = std::min(most, (longest + kMultiple - 1) / kMultiple * kMultiple);
  int64_t tokens = 0;
  for (const ScoreRequest& request : evaluation.requests()) {
    tokens += static_cast<int64_t>(request.tokens.size());
  }
  const bool on_gpu = absl::StartsWith(folder.device, "cuda");
  const int64_t busy = std::max<int64_t>(1, (on_gpu ? kTokensOnGpu : kTokensOnCpu) / length);
  folder.sequence_length = length;
  folder.too_large_is_bad_spec = micro_batch > 0;
  folder.micro_batch = micro_batch > 0 ? micro_batch : std::min(busy, tokens / length + 1);
}

}  // namespace

absl::StatusOr<std::vector<SourceLoss>> MeasureFolder(const FolderEvaluationOptions& options,
                                                      const std::vector<std::string>& datasets,
                                                      int64_t batches,
                                                      Env& env) {
  BeforePart(options);
  ForwardModelOptions folder = options.folder;
  folder.micro_batch = options.micro_batch > 0 ? options.micro_batch : kMicroBatch;
  folder.too_large_is_bad_spec = options.micro_batch > 0;
  HEARTH_ASSIGN_OR_RETURN(const ForwardModel model, OpenForwardModel(folder, env));
  std::vector<SourceLoss> losses;
  for (const std::string& path : datasets) {
    HEARTH_ASSIGN_OR_RETURN(const SourceLoss loss,
                            Measure(options, path, batches, *model.engine, env));
    losses.push_back(loss);
  }
  return losses;
}

absl::StatusOr<Asked> AskFolder(const FolderEvaluationOptions& options,
                                EvaluationOptions questions,
                                Env& env) {
  BeforePart(options);
  ForwardModelOptions folder = options.folder;
  folder.default_length = kDefaultLength;
  // Requests share samples, and none sees another.
  folder.attention = std::string(spec::kDocumentAttention);
  Blame(folder, v1::EXIT_REASON_BAD_DATA);
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec, ForwardModelSpec(folder, env));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Tokenizer> tokenizer,
                          dataset::OpenTokenizerIn(folder.path, env));
  questions.context_length = spec.data().sequence_length();
  Asked asked;
  HEARTH_ASSIGN_OR_RETURN(asked.evaluation, Evaluation::Open(questions, *tokenizer, env));
  Shape(*asked.evaluation, options.micro_batch, questions.context_length, folder);
  HEARTH_ASSIGN_OR_RETURN(const ForwardModel model, OpenForwardModel(folder, env));
  Blame(folder, v1::EXIT_REASON_BAD_DATA);
  HEARTH_ASSIGN_OR_RETURN(const ScoreBatches batches,
                          ScoreBatches::Place(*model.engine, asked.evaluation->requests()));
  asked.scores.resize(asked.evaluation->requests().size());
  for (int64_t i = 0; i < batches.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(BeforeBatch(options));
    const absl::Status run = batches.Run(*model.engine, Pass{}, i, absl::MakeSpan(asked.scores));
    if (!run.ok()) {
      return BlameBatch(options, *model.engine, run);
    }
  }
  asked.result = asked.evaluation->Judge(asked.scores);
  return asked;
}

}  // namespace hearth::trainer
