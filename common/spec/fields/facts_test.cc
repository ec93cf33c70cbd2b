// What is said about the job file's fields: all of it, and nothing that contradicts the rows.
#include "common/spec/fields/facts.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/presets.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::spec {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::testing::HasSubstr;

// The paths of what is set in `message`, as `get --spec` prints it.
void AddLeaves(const Message& message, const std::string& prefix, std::set<std::string>& leaves) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = prefix + field->name();
    if (HasRows(*field)) {
      AddLeaves(message.GetReflection()->GetMessage(message, field), path + '.', leaves);
    } else if (field->is_repeated() && !field->is_map() &&
               field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddLeaves(message.GetReflection()->GetRepeatedMessage(message, field, 0), path + "[0].",
                leaves);
    } else {
      leaves.insert(path);
    }
  }
}

std::set<std::string> LeavesOfResolvedSpecs() {
  std::set<std::string> leaves;
  for (const Preset& preset : Presets()) {
    for (const Recipe& recipe : Recipes()) {
      v1::JobSpec job = ValidJob();
      job.mutable_model()->set_preset(std::string(preset.name));
      job.mutable_model()->mutable_rope_scaling()->set_type("llama3");
      job.mutable_precision()->set_recipe(std::string(recipe.name));
      job.mutable_precision()->mutable_trial();
      job.mutable_precision()->add_remedies()->set_clip(0.5);
      job.mutable_resources()->set_device("cuda");
      job.mutable_resources()->mutable_time_limit()->set_seconds(60);
      (*job.mutable_optimizer()->mutable_groups())["head"].set_lr_scale(2);
      std::vector<FieldViolation> ignored;
      Resolve(job, ignored);
      AddLeaves(job, "", leaves);
    }
  }
  return leaves;
}

TEST(FieldFacts, EachField_IsExplained) {
  for (const FieldFacts& facts : JobFileFields()) {
    EXPECT_GE(facts.comment.size(), 8u) << facts.path << " needs a comment in its proto";
    EXPECT_FALSE(facts.type.empty()) << facts.path;
    EXPECT_EQ(FindFieldFacts(facts.path), &facts) << facts.path;
  }
  EXPECT_GT(JobFileFields().size(), 100u);
}

TEST(FieldFacts, LeavesOfResolvedSpecs_StandInTheDocument) {
  // Read once, before any thread: ctest names the source folder.
  const char* source = std::getenv("HEARTH_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::ifstream in(std::string(source == nullptr ? "." : source) + "/docs/jobfile.md");
  const std::string document((std::istreambuf_iterator<char>(in)), {});
  const std::set<std::string> leaves = LeavesOfResolvedSpecs();
  EXPECT_GT(leaves.size(), 75u);
  for (const std::string& leaf : leaves) {
    const FieldFacts* facts = FindFieldFacts(leaf);
    ASSERT_NE(facts, nullptr) << leaf;
    EXPECT_THAT(document, HasSubstr("`" + facts->path + "`"));
  }
}

TEST(FieldFacts, DefaultsInComments_AreThoseOfTheRows) {
  int compared = 0;
  for (const FieldFacts& facts : JobFileFields()) {
    const std::string& row = RowOf(*facts.field).default_value();
    double a = 0.0;
    double b = 0.0;
    const std::string& text = facts.comment_default;
    if (!RowOf(*facts.field).default_when().empty() && text.find(';') != std::string::npos) {
      EXPECT_EQ(text.substr(0, text.find(';')), row) << facts.path;
      continue;
    }
    if (row.empty() || text.find(' ') != std::string::npos) {
      continue;
    }
    ++compared;
    const bool numbers = absl::SimpleAtod(row, &a) && absl::SimpleAtod(text, &b);
    EXPECT_TRUE(numbers ? a == b : text == row || text == RowOf(*facts.field).zero())
        << facts.path << ": the comment says " << text << ", the row " << row;
  }
  EXPECT_GT(compared, 50);
}

TEST(FieldFacts, Lookup_TakesIndicesAndKeysOrLeavesThemOut) {
  for (const char* path : {"data.train[].path", "data.train[0].path", "data.train.path"}) {
    ASSERT_NE(FindFieldFacts(path), nullptr) << path;
    EXPECT_EQ(FindFieldFacts(path)->path, "data.train[].path");
  }
  for (const char* path : {"optimizer.groups.head.lr_scale", "optimizer.groups.lr_scale"}) {
    ASSERT_NE(FindFieldFacts(path), nullptr) << path;
    EXPECT_EQ(FindFieldFacts(path)->path, "optimizer.groups.NAME.lr_scale");
  }
  EXPECT_EQ(FindFieldFacts("labels.team")->path, "labels");
  EXPECT_EQ(FindFieldFacts("train.stepz"), nullptr);
  EXPECT_EQ(FindFieldFacts(""), nullptr);
  EXPECT_EQ(FieldsIn("").size(), static_cast<size_t>(v1::JobSpec::descriptor()->field_count()));
  EXPECT_EQ(FieldsIn("data.train").size(), 2u);
  EXPECT_EQ(FieldsIn("train.steps").size(), 0u);
}

TEST(FieldFacts, Facts_SayWhatTheRowSays) {
  const FieldFacts& lr = *FindFieldFacts("optimizer.lr");
  EXPECT_EQ(lr.comment, "Peak learning rate, > 0.");
  EXPECT_EQ(lr.type, "number");
  EXPECT_EQ(lr.range, "> 0");
  EXPECT_EQ(lr.default_text, "3e-4");
  EXPECT_TRUE(lr.resumable);
  const FieldFacts& shape = *FindFieldFacts("schedule.decay_shape");
  EXPECT_EQ(shape.needs, "with schedule.name wsd and with schedule.decay_steps > 0");
  EXPECT_EQ(shape.names, (std::vector<std::string_view>{"linear", "sqrt"}));
  EXPECT_EQ(FindFieldFacts("batch.micro_batch_size")->default_text, "auto");
  EXPECT_EQ(FindFieldFacts("batch.micro_batch_size")->unit, "sequences");
  EXPECT_EQ(FindFieldFacts("resources.time_limit")->type, "duration");
  EXPECT_EQ(FindFieldFacts("data.train")->type, "list of section");
  EXPECT_THAT(FindFieldFacts("train.seed")->resume_why, HasSubstr("order of the data"));
  EXPECT_EQ(FindFieldFacts("model.rope_theta")->default_text, "10000, with model.position rope");
  EXPECT_EQ(FindFieldFacts("model.kv_heads")->default_text, "heads");
  EXPECT_EQ(
      FindFieldFacts("parallel.bucket_mib")->default_text,
      "25, with resources.device cuda; on cpu all at once, and where gradients are divided (shard) "
      "block by block");
  EXPECT_EQ(FindFieldFacts("model.preset")->names, PresetNames());
  EXPECT_THAT(FindFieldFacts("precision.fallback")->names, ::testing::Contains("none"));
  EXPECT_EQ(FindFieldFacts("precision.remedies.layers_recipe")->names, RecipeNames());
}

TEST(FieldFacts, Techniques_SayTheirDefaultAndWhereTheyAct) {
  const FieldFacts& hadamard = *FindFieldFacts("precision.techniques.hadamard");
  EXPECT_EQ(hadamard.needs, "with precision.recipe nvfp4 or nvfp4_eden");
  EXPECT_EQ(hadamard.default_text, "true, with precision.recipe nvfp4 or nvfp4_eden");
  for (const FieldFacts* facts : FieldsIn("precision.techniques")) {
    EXPECT_FALSE(facts->needs.empty()) << facts->path;
    // Parts of a recipe are on, and what can be tried in addition is off.
    EXPECT_THAT(facts->default_text,
                ::testing::AnyOf("none", HasSubstr("true, with "), HasSubstr("false, with ")))
        << facts->path;
  }
}

TEST(Synonyms, TheyAreNoFieldsAndPointToOneEach) {
  std::set<const google::protobuf::Descriptor*> seen;
  for (const FieldFacts& facts : JobFileFields()) {
    const google::protobuf::Descriptor& type = *facts.field->containing_type();
    if (!seen.insert(&type).second) {
      continue;
    }
    std::set<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) {
      EXPECT_TRUE(names.insert(type.field(i)->name()).second);
      for (const std::string& synonym : RowOf(*type.field(i)).synonyms()) {
        EXPECT_TRUE(names.insert(synonym).second) << type.name() << " has " << synonym << " twice";
      }
    }
  }
  EXPECT_EQ(FindSynonym("learning_rate", *v1::OptimizerSpec::descriptor())->name(), "lr");
  EXPECT_EQ(FindSynonym("learning_rate", *v1::TrainSpec::descriptor()), nullptr);
}

TEST(Synonyms, ValuesMeanWhatIsAllowed) {
  int checked = 0;
  for (const FieldFacts& facts : JobFileFields()) {
    for (const std::string& pair : RowOf(*facts.field).value_synonyms()) {
      const std::string from = pair.substr(0, pair.find('='));
      const std::string to = pair.substr(pair.find('=') + 1);
      EXPECT_THAT(facts.names, ::testing::Contains(to)) << facts.path;
      EXPECT_THAT(facts.names, ::testing::Not(::testing::Contains(from))) << facts.path;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30);
}

TEST(Synonyms, ValuesElsewhere_AreThoseOfTheOtherField) {
  int checked = 0;
  for (const FieldFacts& facts : JobFileFields()) {
    for (const std::string& pair : RowOf(*facts.field).value_elsewhere()) {
      const std::string value = pair.substr(0, pair.find('='));
      const FieldFacts* const other = FindFieldFacts(pair.substr(pair.find('=') + 1));
      ASSERT_NE(other, nullptr) << facts.path << ": " << pair;
      EXPECT_THAT(other->names, ::testing::Contains(value)) << facts.path;
      EXPECT_THAT(facts.names, ::testing::Not(::testing::Contains(value))) << facts.path;
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace hearth::spec
