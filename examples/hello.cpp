// hello FOLDER PROMPT [TOKENS]: continues PROMPT with the model in FOLDER.

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/session.h"
#include "signet/source.h"

namespace {

// Prints text as it comes; keeps what ended the request.
struct Printer : signet::Sink {
  static void Print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  void OnToken(const signet::TokenEvent& event) override { Print(event.text); }
  void OnEnd(const signet::EndEvent& event) override {
    Print(event.text);
    Print("\n");
    error = event.error;
  }
  std::optional<signet::Error> error;
};

int Report(const signet::Error& error) {
  std::fprintf(stderr, "%s\n", signet::Describe(error).c_str());
  return signet::ExitCode(error);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto source = signet::Source::Open(argv[1], {});
  if (!source) return Report(source.error());
  const auto plan = signet::Plan::Make(*source, {.context = 1024});
  if (!plan) return Report(plan.error());
  auto engine = signet::Engine::Make({});
  if (!engine) return Report(engine.error());
  const auto model = engine->Load(*plan, {});
  if (!model) return Report(model.error());
  auto session = signet::Session::Make(*model, 1);
  if (!session) return Report(session.error());

  const signet::Request request = {.prompt = std::string(argv[2]),
                                   .max_tokens = argc > 3 ? atoi(argv[3]) : 64,
                                   .sampling = model->default_sampling()};
  Printer printer;
  const auto ran = session->Generate({&request, 1}, printer);
  if (!ran) return Report(ran.error());
  return printer.error ? Report(*printer.error) : 0;
}
