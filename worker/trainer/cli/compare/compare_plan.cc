#include "worker/trainer/cli/compare/compare_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/spec/recipe/trial_recipes.h"
#include "common/spec/resolve/resolve.h"

namespace hearth::trainer {
namespace {

// One value for each field that varies.
struct Setting {
  std::vector<std::string> overrides;
  std::string name;  // "bf16_tail=0.1 clip=1"; empty: nothing varies
};

// Fields that have options of their own.
constexpr std::pair<absl::string_view, absl::string_view> kOptions[] = {
    {"precision.recipe", "--recipes"}, {"train.seed", "--seeds"}};

// A field and its values, as an option gives them.
struct Varied {
  std::string field;
  std::vector<std::string> values;
};

// Parts between commas; those in brackets belong to a value.
std::vector<std::string> ValuesOf(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[' || c == '{' ? 1 : 0) - (c == ']' || c == '}' ? 1 : 0);
    if (c == ',' && depth == 0) {
      values.emplace_back();
    } else {
      values.back().push_back(c);
    }
  }
  return values;
}

// `option`: "--vary".
absl::StatusOr<Varied> ParseVaried(absl::string_view option, const std::string& given) {
  const size_t equals = given.find('=');
  Varied varied;
  varied.field = equals == std::string::npos ? "" : given.substr(0, equals);
  if (varied.field.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " ", given, ": want FIELD=VALUE,VALUE,..."));
  }
  for (const auto& [taken, other] : kOptions) {
    if (varied.field == taken) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, " ", varied.field, ": ", other, " varies it"));
    }
  }
  varied.values = ValuesOf(given.substr(equals + 1));
  if (std::find(varied.values.begin(), varied.values.end(), "") != varied.values.end()) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", given, ": a value is empty"));
  }
  return varied;
}

// `before` and one more value.
Setting With(const Setting& before, const std::string& field, const std::string& value) {
  Setting setting = before;
  setting.overrides.push_back(absl::StrCat(field, "=", value));
  absl::StrAppend(&setting.name, before.name.empty() ? "" : " ", field.substr(field.rfind('.') + 1),
                  "=", value);
  return setting;
}

absl::StatusOr<std::vector<Setting>> SettingsOf(const std::vector<std::string>& vary,
                                                const std::vector<std::string>& each) {
  std::vector<Setting> settings(1);
  for (const std::string& given : vary) {
    HEARTH_ASSIGN_OR_RETURN(const Varied varied, ParseVaried("--vary", given));
    std::vector<Setting> combined;
    for (const Setting& before : settings) {
      for (const std::string& value : varied.values) {
        combined.push_back(With(before, varied.field, value));
      }
    }
    settings = std::move(combined);
  }
  const std::vector<Setting> bases = settings;
  for (const std::string& given : each) {
    HEARTH_ASSIGN_OR_RETURN(const Varied varied, ParseVaried("--each", given));
    for (const std::string& value : varied.values) {
      for (const Setting& before : bases) {
        settings.push_back(With(before, varied.field, value));
      }
    }
  }
  return settings;
}

// The settings of one recipe.
struct Distinct {
  std::vector<size_t> same_as;  // the first setting that is the same job
  std::vector<bool> plain;      // it is the job without a setting
  bool one() const {
    return std::all_of(same_as.begin(), same_as.end(), [](size_t i) { return i == 0; });
  }
};

// What tells jobs apart: defaults that are written and those that are not are alike.
absl::StatusOr<std::string> ResolvedText(const v1::JobSpec& job, const ComparedRun& run) {
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec resolved, JobOf(job, run));
  std::vector<spec::FieldViolation> ignored;  // each run is checked for itself
  spec::Resolve(resolved, ignored);
  return config::ToYaml(resolved);
}

absl::StatusOr<Distinct> DistinctOf(const v1::JobSpec& job,
                                    const std::string& recipe,
                                    const std::vector<Setting>& settings) {
  Distinct distinct;
  std::map<std::string, size_t> first;
  ComparedRun run;
  run.recipe = recipe;
  HEARTH_ASSIGN_OR_RETURN(const std::string plain, ResolvedText(job, run));
  for (size_t i = 0; i < settings.size(); ++i) {
    run.overrides = settings[i].overrides;
    HEARTH_ASSIGN_OR_RETURN(const std::string text, ResolvedText(job, run));
    distinct.same_as.push_back(first.emplace(text, i).first->second);
    distinct.plain.push_back(text == plain);
  }
  return distinct;
}

}  // namespace

absl::StatusOr<v1::JobSpec> JobOf(const v1::JobSpec& job, const ComparedRun& run) {
  v1::JobSpec varied = job;
  for (const std::string& assignment : run.overrides) {
    HEARTH_RETURN_IF_ERROR(config::ApplyOverride(varied, assignment));
  }
  if (run.seed.has_value()) {
    varied.mutable_train()->set_seed(*run.seed);
  }
  return spec::InRecipe(varied, run.recipe);
}

std::string FolderOf(const ComparedRun& run) {
  std::string folder = run.name();
  for (char& c : folder) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                       absl::StrContains("._=+-", absl::string_view(&c, 1));
    c = plain ? c : '-';
  }
  if (run.seed.has_value()) {
    absl::StrAppend(&folder, "-seed", *run.seed);
  }
  return folder;
}

absl::StatusOr<std::vector<ComparedRun>> PlanRuns(const v1::JobSpec& job,
                                                  const std::vector<std::string>& recipes,
                                                  const std::vector<std::string>& vary,
                                                  const std::vector<std::string>& each,
                                                  int seeds) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Setting> settings, SettingsOf(vary, each));
  std::vector<Distinct> distinct;
  for (const std::string& recipe : recipes) {
    HEARTH_ASSIGN_OR_RETURN(distinct.emplace_back(), DistinctOf(job, recipe, settings));
  }
  const auto name = [&](size_t recipe, size_t setting) {
    return distinct[recipe].one() ? "" : settings[distinct[recipe].same_as[setting]].name;
  };
  v1::JobSpec resolved = job;
  std::vector<spec::FieldViolation> ignored;  // each run is checked for itself
  spec::Resolve(resolved, ignored);
  std::vector<ComparedRun> runs;
  for (int seed = 0; seed < std::max(1, seeds); ++seed) {
    for (size_t s = 0; s < settings.size(); ++s) {
      for (size_t r = 0; r < recipes.size(); ++r) {
        if (distinct[r].same_as[s] != s) {
          continue;
        }
        ComparedRun& run = runs.emplace_back();
        run.recipe = recipes[r];
        if (!distinct[r].plain[s]) {
          run.overrides = settings[s].overrides;
        }
        run.setting = name(r, s);
        run.reference_setting = name(0, s);
        if (seeds > 0) {
          run.seed = resolved.train().seed() + seed;
        }
      }
    }
  }
  return runs;
}

}  // namespace hearth::trainer
