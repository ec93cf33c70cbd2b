#include "common/spec/recipe/precision.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

constexpr int kMaxRemedies = 16;
// On a GPU each is recorded as graphs of its own.
constexpr int kMaxLayerRemedies = 4;

void CheckRemedy(const v1::JobSpec& job,
                 const std::string& field,
                 const v1::PrecisionRemedy& remedy,
                 Checker& check) {
  if (!remedy.has_learning_rate() && !remedy.has_clip() && !remedy.has_high_precision_layers()) {
    check.Add(field, "changes nothing; give learning_rate, clip or high_precision_layers");
  }
  if (remedy.has_clip() && job.optimizer().grad_clip() <= 0.0) {
    check.Add(field + ".clip", "needs optimizer.grad_clip > 0");
  }
}

}  // namespace

void CheckRemedies(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (p.remedies_size() > kMaxRemedies) {
    check.Add("precision.remedies", Text(p.remedies_size(), " entries; at most ", kMaxRemedies));
    return;
  }
  if (p.remedies_size() > 0 && !FallsBack(p)) {
    check.Add("precision.remedies",
              "need precision.fallback: without another recipe no refused step can be done again");
  }
  int with_layers = 0;
  for (int i = 0; i < p.remedies_size(); ++i) {
    const std::string field = Text("precision.remedies[", i, ']');
    CheckRemedy(job, field, p.remedies(i), check);
    with_layers += p.remedies(i).has_high_precision_layers() ? 1 : 0;
    if (with_layers == kMaxLayerRemedies + 1) {
      check.Add(field + ".high_precision_layers",
                Text("at most ", kMaxLayerRemedies, " remedies may change the layers"));
    }
  }
}

}  // namespace hearth::spec
