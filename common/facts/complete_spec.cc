#include "common/facts/complete_spec.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/facts/tokenizer_facts.h"
#include "common/hf/hf_config.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/rules/rules.h"

namespace hearth::facts {
namespace {

enum class Missing { kError, kSkipped };

class Reader {
 public:
  Reader(const v1::JobSpec& spec, Env& env, Tokenizers tokenizers, Missing missing)
      : spec_(spec),
        env_(env),
        tokenizers_(env),
        compare_(tokenizers == Tokenizers::kCompare && !spec.data().allow_other_tokenizer() &&
                 spec::Evaluate("compares_tokenizers", spec) == spec::Truth::kYes),
        missing_(missing) {}

  absl::Status ReadData() {
    for (int i = 0; i < spec_.data().train_size(); ++i) {
      HEARTH_RETURN_IF_ERROR(Judge(ReadDataset(absl::StrCat("data.train[", i, "].path"),
                                               spec_.data().train(i).path(), true)));
    }
    for (int i = 0; i < spec_.data().validation_size(); ++i) {
      HEARTH_RETURN_IF_ERROR(Judge(ReadDataset(absl::StrCat("data.validation[", i, "].path"),
                                               spec_.data().validation(i).path(), false)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadModel() {
    if (!spec_.model().has_from()) {
      return absl::OkStatus();
    }
    return Judge(ReadFolder(spec_.model().from()));
  }

  const spec::DataFacts& facts() const { return facts_; }
  const v1::ModelSpec* model() const { return model_.has_value() ? &*model_ : nullptr; }
  bool skipped() const { return skipped_; }

 private:
  // A path that cannot be read is an error, or taken for one of another machine.
  absl::Status Judge(const absl::Status& status) {
    if (status.ok() || missing_ == Missing::kError) {
      return status;
    }
    skipped_ = true;
    return absl::OkStatus();
  }

  absl::Status ReadFolder(const std::string& path) {
    HEARTH_ASSIGN_OR_RETURN(v1::ModelSpec model, hf::ReadHfConfig(path, env_));
    if (compare_) {
      HEARTH_ASSIGN_OR_RETURN(v1::TokenizerFacts tokenizer, tokenizers_.Read(path));
      facts_.model = spec::PathTokenizer{"model.from", path, model.vocab(), std::move(tokenizer)};
    }
    model_ = std::move(model);
    return absl::OkStatus();
  }

  absl::Status ReadDataset(const std::string& field, const std::string& path, bool train) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Dataset> data,
                            dataset::Dataset::Open(path, env_));
    facts_.vocab = std::max(facts_.vocab, data->vocab());
    facts_.train_tokens += train ? data->tokens() : 0;
    facts_.masks.push_back({field, path, data->has_mask()});
    if (compare_) {
      HEARTH_ASSIGN_OR_RETURN(v1::TokenizerFacts tokenizer, tokenizers_.Read(path));
      facts_.datasets.push_back({field, path, data->vocab(), std::move(tokenizer)});
    }
    return absl::OkStatus();
  }

  const v1::JobSpec& spec_;
  Env& env_;
  TokenizerReader tokenizers_;
  const bool compare_;
  const Missing missing_;
  bool skipped_ = false;  // a path that is not to be read on this machine
  spec::DataFacts facts_;
  std::optional<v1::ModelSpec> model_;
};

absl::Status Complete(v1::JobSpec& spec, const Reader& reader) {
  std::vector<spec::FieldViolation> violations;
  spec::ResolveWithFacts(spec, reader.facts(), reader.model(), violations);
  return spec::ViolationsToStatus(violations);
}

// A task that trains nothing has nothing to complete: its folders say what the models are.
absl::Status CheckTrains(const v1::JobSpec& spec) {
  return spec::Trains(spec)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(
                   "task: ", spec.task(), " trains nothing, so there is nothing to plan or time"));
}

absl::Status Compare(const v1::JobSpec& spec, const Reader& reader) {
  std::vector<spec::FieldViolation> violations;
  spec::Checker check(violations);
  spec::CheckTokenizers(spec, reader.facts(), check);
  spec::CheckLossMasks(spec, reader.facts(), check);
  return spec::ViolationsToStatus(violations);
}

}  // namespace

absl::Status CompleteSpec(v1::JobSpec& spec, Env& env, Tokenizers tokenizers) {
  HEARTH_RETURN_IF_ERROR(CheckTrains(spec));
  const v1::JobSpec given = spec;
  Reader reader(given, env, tokenizers, Missing::kError);
  HEARTH_RETURN_IF_ERROR(reader.ReadData());
  HEARTH_RETURN_IF_ERROR(reader.ReadModel());
  return Complete(spec, reader);
}

absl::Status CompleteForPlan(v1::JobSpec& spec, Env& env) {
  HEARTH_RETURN_IF_ERROR(CheckTrains(spec));
  if (!spec.model().has_vocab() && !spec.model().has_from()) {
    return CompleteSpec(spec, env);
  }
  const v1::JobSpec given = spec;
  Reader reader(given, env, Tokenizers::kAsTheyAre, Missing::kError);
  HEARTH_RETURN_IF_ERROR(reader.ReadModel());
  return Complete(spec, reader);
}

absl::Status CheckWhatIsHere(const v1::JobSpec& spec, Env& env) {
  Reader reader(spec, env, Tokenizers::kCompare, Missing::kSkipped);
  HEARTH_RETURN_IF_ERROR(reader.ReadData());
  HEARTH_RETURN_IF_ERROR(reader.ReadModel());
  if (reader.skipped()) {
    return Compare(spec, reader);
  }
  v1::JobSpec copy = spec;
  return Complete(copy, reader);
}

absl::Status CompareTokenizers(const v1::JobSpec& spec, Env& env) {
  Reader reader(spec, env, Tokenizers::kCompare, Missing::kSkipped);
  HEARTH_RETURN_IF_ERROR(reader.ReadData());
  HEARTH_RETURN_IF_ERROR(reader.ReadModel());
  return Compare(spec, reader);
}

}  // namespace hearth::facts
