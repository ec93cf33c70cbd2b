#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/private_files.h"
#include "jobctl/commands/access/callers.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

struct Options {
  CLI::App* create = nullptr;
  CLI::App* list = nullptr;
  CLI::App* revoke = nullptr;
  v1::CreateTokenRequest request;
  std::string expires;
  std::string output_file;
  std::string name;  // of the token to revoke
};

std::string Dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string ExpiryText(const v1::Token& token) {
  return token.has_expire_time() ? TimeText(token.expire_time()) : "never";
}

// Before the token is made: whether its secret can be kept.
absl::Status CheckOutputFile(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (std::filesystem::is_directory(path)) {
    return absl::InvalidArgumentError(absl::StrCat("--output-file ", path, " is a folder"));
  }
  return access(folder.c_str(), W_OK | X_OK) == 0
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno, absl::StrCat("--output-file ", path, ": ", folder));
}

// What the token is, for people.
std::string Sentence(const v1::Token& token) {
  return absl::StrCat("token ", token.name(), ": ", RoleName(token.role()),
                      token.role() == v1::ROLE_WORKER
                          ? absl::StrCat(" for worker ", token.worker_id())
                          : absl::StrCat(" for user ", token.user()),
                      token.certificate().empty()
                          ? ""
                          : absl::StrCat(", proved by the certificate of ", token.certificate()),
                      ", expires ", ExpiryText(token), "\n");
}

absl::StatusOr<int> Create(Context& context, const Options& options) {
  v1::CreateTokenRequest request = options.request;
  if (!request.certificate().empty() && !options.output_file.empty()) {
    WriteErr("error: a token with --certificate has no secret for --output-file\n");
    return kExitUsage;
  }
  if (!options.expires.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const absl::Duration expires,
                            ParseTimeout(options.expires, "--expires"));
    request.mutable_expires_in()->set_seconds(absl::ToInt64Seconds(expires));
    request.mutable_expires_in()->set_nanos(static_cast<int32_t>(
        absl::ToInt64Nanoseconds(expires - absl::Seconds(absl::ToInt64Seconds(expires)))));
  }
  // Before the token is made: its secret is sent once, and must find a place.
  if (!options.output_file.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckOutputFile(options.output_file));
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(v1::CreateTokenResponse response,
                          client->Call<v1::CreateTokenResponse>(request));
  const v1::Token& token = response.token();
  if (!options.output_file.empty()) {
    const absl::Status written =
        WritePrivateFile(options.output_file, absl::StrCat(response.secret(), "\n"));
    if (!written.ok()) {
      return Annotate(written, absl::StrCat("the token was made, but its secret is lost (remove "
                                            "it: jobctl token revoke ",
                                            token.name(), ")"));
    }
    // The file has it; what is printed below may end in a log.
    response.clear_secret();
  }
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, response));
  if (printed) {
    return kExitOk;
  }
  if (response.secret().empty()) {
    WriteOut(absl::StrCat("token/", token.name(),
                          context.quiet || context.format == OutputFormat::kName ? "" : " created",
                          "\n"));
  } else {
    WriteOut(absl::StrCat(response.secret(), "\n"));
  }
  if (!context.quiet) {
    WriteErr(absl::StrCat(Sentence(token),
                          response.secret().empty() ? "" : "this is the only time it is shown\n"));
  }
  return kExitOk;
}

absl::StatusOr<int> List(Context& context) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  HEARTH_ASSIGN_OR_RETURN(const v1::ListTokensResponse response,
                          client->Call<v1::ListTokensResponse>(v1::ListTokensRequest()));
  HEARTH_ASSIGN_OR_RETURN(const bool printed, PrintMessage(context.format, response));
  if (printed) {
    return kExitOk;
  }
  if (context.format == OutputFormat::kName) {
    for (const v1::Token& token : response.tokens()) {
      WriteOut(absl::StrCat("token/", token.name(), "\n"));
    }
    return kExitOk;
  }
  std::vector<std::string> header = {"NAME", "USER", "ROLE", "WORKER", "EXPIRES", "CREATED-BY"};
  const bool wide = context.format == OutputFormat::kWide;
  if (wide) {
    header.insert(header.end(), {"CREATED", "CERTIFICATE"});
  }
  Table table(header);
  if (wide) {
    table.Whole();
  }
  for (const v1::Token& token : response.tokens()) {
    std::vector<std::string> row = {token.name(),           Dash(token.user()),
                                    RoleName(token.role()), Dash(token.worker_id()),
                                    ExpiryText(token),      Dash(token.created_by())};
    if (wide) {
      row.insert(row.end(), {TimeText(token.create_time()), Dash(token.certificate())});
    }
    table.Add(std::move(row));
  }
  WriteOut(table.Render(FitColumns()));
  return kExitOk;
}

absl::StatusOr<int> Revoke(Context& context, const std::string& name) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::RevokeTokenRequest request;
  request.set_name(name);
  HEARTH_ASSIGN_OR_RETURN(const v1::Token token, client->Call<v1::Token>(request));
  HEARTH_RETURN_IF_ERROR(PrintMutation(context.format, context.quiet,
                                       absl::StrCat("token/", token.name()), "revoked", token));
  return kExitOk;
}

void SetupCreate(CLI::App& app, Options& options) {
  v1::CreateTokenRequest& request = options.request;
  app.add_option("name", *request.mutable_name(),
                 "Name of the token, by which it is listed and revoked")
      ->required();
  app.add_option_function<std::string>(
         "--role", [&request](const std::string& role) { request.set_role(RoleCalled(role)); },
         "viewer (reads), operator (submits, and changes its own jobs), admin (everything), worker "
         "(a hearth-worker)")
      ->required()
      ->check(CLI::IsMember(RoleNames()));
  app.add_option("--user", *request.mutable_user(),
                 "User that its calls act as (default: the name of the token)");
  app.add_option("--worker", *request.mutable_worker_id(),
                 "The only worker that may use it (role worker)");
  app.add_option("--certificate", *request.mutable_certificate(),
                 "Common name of the client certificate that stands for it; it then has no secret");
  app.add_option("--expires", options.expires,
                 "Valid for this long, e.g. 12h, 30d (default: for ever)");
  app.add_option("--output-file", options.output_file,
                 "Write the secret to this file, which only you can read, instead of printing it");
}

}  // namespace

Action SetupToken(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);
  options->create = app.add_subcommand("create", "Make a token and print its secret, once");
  SetupCreate(*options->create, *options);
  options->list = app.add_subcommand("list", "List tokens, without their secrets");
  options->revoke = app.add_subcommand("revoke", "Refuse a token from now on");
  options->revoke->add_option("token", options->name, "Name of the token")->required();
  return [options](Context& context) -> absl::StatusOr<int> {
    if (options->create->parsed()) {
      return Create(context, *options);
    }
    return options->list->parsed() ? List(context) : Revoke(context, options->name);
  };
}

}  // namespace hearth::jobctl
