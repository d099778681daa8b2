// signet devices: what --devices can name on this machine.

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/standard_output.h"
#include "signet/devices.h"

namespace signet::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  signet devices
  signet devices --json

Ranks on the CPU, cpu:0, cpu:1, ..., share its cores and its memory. Cores are
those that affinity and cgroup allow this process, memory is within its cgroup
and resource limits.)";

std::string Gigabytes(uint64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string Text(const DeviceListing& devices) {
  std::string text;
  const auto out = std::back_inserter(text);
  const CpuListing& cpu = devices.cpu;
  fmt::format_to(out, "{}  {}\n", cpu.name,
                 cpu.model.empty() ? "a CPU without a name" : cpu.model);
  fmt::format_to(out, "  uuid          {}\n", cpu.uuid);
  fmt::format_to(out, "  instructions  {}\n", cpu.instruction_set);
  fmt::format_to(out, "  cores         {} of {}\n", cpu.usable_cores,
                 cpu.cores);
  fmt::format_to(out, "  memory        {} free, limit {}, {} in all\n",
                 Gigabytes(cpu.free_bytes), Gigabytes(cpu.limit_bytes),
                 Gigabytes(cpu.memory_bytes));
  for (const GpuListing& gpu : devices.gpus) {
    fmt::format_to(out, "{}  {}\n", gpu.name, gpu.model);
    fmt::format_to(out, "  uuid          {}\n", gpu.uuid);
    fmt::format_to(out, "  pci           {}\n", gpu.pci);
    fmt::format_to(out, "  instructions  {}\n", gpu.instruction_set);
    fmt::format_to(out, "  memory        {} free, {} in all\n",
                   Gigabytes(gpu.free_bytes), Gigabytes(gpu.memory_bytes));
  }
  if (!devices.links.empty()) text += "links\n";
  for (const LinkListing& link : devices.links) {
    fmt::format_to(out, "  {} {}  {}\n", link.first, link.second, link.kind);
  }
  if (!devices.driver.empty()) {
    fmt::format_to(out, "driver {}\n", devices.driver);
  }
  if (!devices.no_gpu.empty()) {
    fmt::format_to(out, "no GPU: {}\n", devices.no_gpu);
  }
  return text;
}

class DevicesCommand : public Command {
 public:
  explicit DevicesCommand(CLI::App& app) {
    app.footer(kExamples);
    AddJson(app, json_);
  }

  int Run() override {
    const Result<DeviceListing> devices = ListDevices();
    if (!devices) return Report(devices.error(), json_);
    return PrintResult(json_ ? DevicesJson(*devices) : Text(*devices));
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDevicesCommand(CLI::App& app) {
  return std::make_unique<DevicesCommand>(app);
}

}  // namespace signet::cli
