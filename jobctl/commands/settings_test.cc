#include "jobctl/commands/settings.h"

#include <map>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

// What a command line, an environment and a context file make of the settings.
struct Machine {
  CLI::App app{"", "jobctl"};
  Context context;
  std::map<std::string, std::string> environment;
  std::string file;

  Machine() { AddSettings(app, context); }
  absl::Status Apply(const std::string& arguments = "") {
    app.parse(arguments);
    return ApplySettings(
        app, [this](const char* name) { return environment[name]; }, "/c.json", file, context);
  }
};

TEST(Settings, Nothing_GivesTheDefaults) {
  Machine machine;
  ASSERT_TRUE(machine.Apply().ok());
  EXPECT_EQ(machine.context.connect.coordinators, "127.0.0.1:7070");
  EXPECT_FALSE(machine.context.prices.any());
  EXPECT_EQ(machine.context.prices.currency, "$");
  EXPECT_EQ(machine.context.temperature_limit, 85);
}

TEST(Settings, Flag_BeforeEnvironment_BeforeFile) {
  const std::string file =
      R"({"coordinator": "file:1", "tls_ca": "ca.pem", "price_per_kwh": 0.1, "currency": "CHF",
          "price_per_gpu_hour": 0.5, "temperature_limit": 70, "other": 1})";
  Machine one;
  one.file = file;
  ASSERT_TRUE(one.Apply().ok());
  EXPECT_EQ(one.context.connect.coordinators, "file:1");
  EXPECT_EQ(one.context.connect.tls_ca, "ca.pem");
  EXPECT_EQ(one.context.prices.per_kwh, 0.1);
  EXPECT_EQ(one.context.prices.currency, "CHF");
  EXPECT_EQ(one.context.temperature_limit, 70);
  Machine two;
  two.file = file;
  two.environment = {{"HEARTH_COORDINATOR", "env:2"},
                     {"HEARTH_PRICE_PER_KWH", "0.2"},
                     {"HEARTH_PRICE_PER_GPU_HOUR", "2"},
                     {"HEARTH_CURRENCY", "EUR"},
                     {"HEARTH_TEMPERATURE_LIMIT", ""}};
  ASSERT_TRUE(two.Apply("--price-per-kwh 0").ok());
  EXPECT_EQ(two.context.connect.coordinators, "env:2");
  EXPECT_EQ(two.context.prices.per_kwh, 0) << "a flag of 0 is a price";
  EXPECT_EQ(two.context.prices.per_gpu_hour, 2);
  EXPECT_EQ(two.context.prices.currency, "EUR");
  EXPECT_EQ(two.context.temperature_limit, 70) << "empty is unset";
}

TEST(Settings, BadNumber_SaysWhichVariableAndWhatIsAccepted) {
  for (const char* bad : {"10ct", "-1", "nan", "inf", "0,10", " "}) {
    Machine machine;
    machine.environment["HEARTH_PRICE_PER_KWH"] = bad;
    const absl::Status status = machine.Apply();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(status.message(), "HEARTH_PRICE_PER_KWH is '" + std::string(bad) +
                                    "', not a number of at least 0, e.g. 0.10");
  }
  Machine hot;
  hot.environment["HEARTH_TEMPERATURE_LIMIT"] = "0";
  EXPECT_EQ(hot.Apply().message(),
            "HEARTH_TEMPERATURE_LIMIT is '0', not degrees Celsius, a number above 0, e.g. 85");
}

TEST(Settings, BadFile_SaysWhichKeyAndWhatIsAccepted) {
  const std::map<std::string, std::string> cases = {
      {R"({"price_per_gpu_hour": "2"})",
       R"(/c.json: "price_per_gpu_hour" is "2", not a number of at least 0, e.g. 0.10)"},
      {R"({"price_per_kwh": -1})",
       R"(/c.json: "price_per_kwh" is -1, not a number of at least 0, e.g. 0.10)"},
      {R"({"currency": 3})", R"(/c.json: "currency" is 3, not a text in quotes)"},
      {"[1]", R"(/c.json is not a JSON object, e.g. {"coordinator": "host:7070"})"},
      {"{", R"(/c.json is not a JSON object, e.g. {"coordinator": "host:7070"})"}};
  for (const auto& [file, message] : cases) {
    Machine machine;
    machine.file = file;
    EXPECT_EQ(machine.Apply().message(), message);
  }
  Machine overridden;
  overridden.file = R"({"price_per_kwh": -1})";
  overridden.environment["HEARTH_PRICE_PER_KWH"] = "0.1";
  EXPECT_TRUE(overridden.Apply().ok());
}

constexpr char kContexts[] = R"({
  "coordinator": "top:1", "token_file": "/top.token", "currency": "EUR", "current": "lab",
  "contexts": {"lab": {"coordinator": "lab:7070", "token_file": "/lab.token", "insecure": true},
               "home": {"coordinator": "home:7070", "price_per_kwh": 0.2}}})";

TEST(Settings, Contexts_CurrentUnlessAnotherIsNamed) {
  Machine current;
  current.file = kContexts;
  ASSERT_TRUE(current.Apply().ok());
  EXPECT_EQ(current.context.connect.coordinators, "lab:7070");
  EXPECT_EQ(current.context.connect.token_file, "/lab.token");
  EXPECT_TRUE(current.context.connect.insecure);
  EXPECT_EQ(current.context.prices.currency, "EUR") << "the top fills what the context leaves out";
  EXPECT_EQ(current.context.context_name, "lab");

  Machine variable;
  variable.file = kContexts;
  variable.environment["HEARTH_CONTEXT"] = "home";
  ASSERT_TRUE(variable.Apply().ok());
  EXPECT_EQ(variable.context.connect.coordinators, "home:7070");
  EXPECT_EQ(variable.context.prices.per_kwh, 0.2);
  EXPECT_FALSE(variable.context.connect.insecure);

  // What a context allows is for its own coordinator.
  Machine elsewhere;
  elsewhere.file = kContexts;
  ASSERT_TRUE(elsewhere.Apply("--coordinator prod:7070").ok());
  EXPECT_FALSE(elsewhere.context.connect.insecure);
  EXPECT_EQ(elsewhere.context.connect.token_file, "");

  Machine absent;
  absent.file = kContexts;
  const absl::Status refused = absent.Apply("--context nowhere");
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("there are: home, lab"));
}

TEST(Settings, ContextThatAFlagNames_GoesBeforeTheEnvironment) {
  Machine machine;
  machine.file = kContexts;
  machine.environment = {{"HEARTH_COORDINATOR", "env:1"}, {"HEARTH_CURRENCY", "CHF"}};
  ASSERT_TRUE(machine.Apply("--context lab").ok());
  EXPECT_EQ(machine.context.connect.coordinators, "lab:7070");
  EXPECT_EQ(machine.context.connect.token_file, "/lab.token");
  EXPECT_EQ(machine.context.prices.currency, "CHF") << "the context has none";
}

// Otherwise a token of one coordinator would be shown to another.
TEST(Settings, TokenBesideACoordinator_IsForThatOneAlone) {
  Machine flag;
  flag.file = kContexts;
  ASSERT_TRUE(flag.Apply("--coordinator other:7070").ok());
  EXPECT_EQ(flag.context.connect.token_file, "");
  Machine variable;
  variable.file = kContexts;
  variable.environment["HEARTH_COORDINATOR"] = "127.0.0.1:7070";
  ASSERT_TRUE(variable.Apply().ok());
  EXPECT_EQ(variable.context.connect.token_file, "");
  Machine without;
  without.file = kContexts;
  without.environment["HEARTH_CONTEXT"] = "home";
  ASSERT_TRUE(without.Apply().ok());
  EXPECT_EQ(without.context.connect.token_file, "") << "the top's token is for the top's";
  Machine given;
  given.file = kContexts;
  given.environment["HEARTH_TOKEN_FILE"] = "/mine.token";
  ASSERT_TRUE(given.Apply("--coordinator other:7070").ok());
  EXPECT_EQ(given.context.connect.token_file, "/mine.token");
  Machine loose;
  loose.file = R"({"token_file": "/any.token"})";
  ASSERT_TRUE(loose.Apply("--coordinator other:7070").ok());
  EXPECT_EQ(loose.context.connect.token_file, "/any.token") << "no coordinator stands beside it";
}

TEST(Settings, AsAndInsecure_ComeFromFlags) {
  Machine machine;
  machine.file = R"({"as": "mallory"})";
  ASSERT_TRUE(machine.Apply("--as bob --insecure").ok());
  EXPECT_EQ(machine.context.connect.act_as, "bob");
  EXPECT_TRUE(machine.context.connect.insecure);
  Machine none;
  none.file = R"({"as": "mallory"})";
  ASSERT_TRUE(none.Apply().ok());
  EXPECT_EQ(none.context.connect.act_as, "");
  Machine wrong;
  wrong.file = R"({"contexts": {"a": {"insecure": "yes"}}})";
  EXPECT_EQ(wrong.Apply("--context a").message(),
            R"(/c.json: "a": "insecure" is "yes", not true or false)");
}

TEST(Settings, SettingsGiven_AreThoseOfTheCommandLine) {
  Machine machine;
  machine.app.parse(
      "--coordinator lab:7070 --token-file x/lab.token --tls-ca /ca.pem --price-per-kwh 0.1 "
      "--as bob --insecure");
  EXPECT_EQ(SettingsGiven(machine.app, "/here"),
            (nlohmann::json{{"coordinator", "lab:7070"},
                            {"token_file", "/here/x/lab.token"},
                            {"tls_ca", "/ca.pem"},
                            {"price_per_kwh", 0.1},
                            {"insecure", true}}));
}

TEST(Settings, BadFlag_SaysWhatIsAccepted) {
  for (const char* bad : {"10ct", "-1", "inf"}) {
    Machine machine;
    try {
      machine.app.parse(std::string("--price-per-kwh=") + bad);
      ADD_FAILURE() << bad;
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--price-per-kwh"));
      EXPECT_THAT(error.what(), HasSubstr("not a number of at least 0, e.g. 0.10"));
    }
  }
}

// Every command, present and future, that takes a job or a worker.
TEST(Commands, TakeWhatOutputNamePrints) {
  int jobs = 0;
  int workers = 0;
  for (const CommandDef& def : Commands()) {
    CLI::App app("", "jobctl");
    CLI::App* command = app.add_subcommand(def.name, def.help);
    const Action action = def.setup(*command);
    AcceptResourceNames(*command);
    for (const CLI::Option* option : command->get_options()) {
      const std::string kind = option->get_name();
      if (kind != "job" && kind != "worker") {
        continue;
      }
      (kind == "job" ? jobs : workers) += 1;
      std::string line = std::string(def.name) + " " + kind + "/x-1";
      CLI::Option* const other = command->get_option_no_throw("other");  // a second job
      line += other == nullptr ? "" : " job/y-2";
      line += command->get_option_no_throw("text") == nullptr ? "" : " words";  // of a note
      app.parse(line);
      EXPECT_EQ(option->as<std::string>(), "x-1") << def.name;
      EXPECT_TRUE(other == nullptr || other->as<std::string>() == "y-2") << def.name;
    }
  }
  EXPECT_GE(jobs, 15);
  EXPECT_EQ(workers, 6);
}

}  // namespace
}  // namespace hearth::jobctl
