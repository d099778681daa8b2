#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/gpu_devices.h"
#include "base/bytes.h"
#include "engine/devices.h"
#include "evidence/bench_report.h"
#include "evidence/build_facts.h"
#include "signet/version.h"

namespace signet::evidence {
namespace {

using Row = std::vector<std::string>;

std::string Human(double bytes) {
  return HumanBytes(Bytes(static_cast<uint64_t>(bytes)));
}

// Three digits, more before the point.
std::string Number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string WithSpread(const Spread& spread) {
  return fmt::format("{} ({} ... {})", Number(spread.median),
                     Number(spread.min), Number(spread.max));
}

std::string Share(double done, double seconds, double ceiling) {
  if (done <= 0 || seconds <= 0 || ceiling <= 0) return "-";
  return fmt::format("{:.1f} %", 100 * done / seconds / ceiling);
}

std::string Operations(double operations) {
  for (const auto& [unit, name] : {std::pair(1e12, "T"), std::pair(1e9, "G"),
                                   std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (operations >= unit) {
      return fmt::format("{} {}FLOP", Number(operations / unit), name);
    }
  }
  return fmt::format("{} FLOP", Number(operations));
}

// Columns as wide as their widest cell, names left and numbers right.
std::string Table(const std::vector<Row>& rows, size_t names) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i < names ? fmt::format("{:<{}}  ", row[i], widths[i])
                        : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string WhereText(const BenchReport& report, const std::string& build) {
  const BuildFacts facts = FactsOfThisBuild();
  const topology::DeviceIdentity& device = report.device;
  std::string text = fmt::format(
      "{} ({})\n{} {} ({}), {} threads, context {}, batch {}\n", report.model,
      report.folder, DeviceName(device), device.uuid, device.architecture,
      report.threads, report.context, report.batch);
  if (device.is_gpu()) {
    text += fmt::format("driver {}\n", backend::GpuDriverVersion());
  }
  return text + fmt::format("contract {}\nsignet {}, commit {}, build {}\n\n",
                            report.contract, Version(),
                            facts.commit.empty() ? "unknown" : facts.commit,
                            build);
}

std::string CeilingsText(const BenchReport& report) {
  const Ceilings& ceilings = report.ceilings;
  std::string text;
  text += fmt::format(
      "ceilings  read {}/s of {}, ", Human(ceilings.read_bytes_per_second),
      ceilings.read_of == ReadOf::kFiles ? "mapped files" : "memory");
  text +=
      ceilings.operations_per_second > 0
          ? fmt::format("{}/s {}", Operations(ceilings.operations_per_second),
                        ceilings.operations)
          : fmt::format("{} not measured", ceilings.operations);
  if (ceilings.host_to_device_bytes_per_second > 0) {
    text += fmt::format(", host to device {}/s",
                        Human(ceilings.host_to_device_bytes_per_second));
  }
  const PlanResult& planning = report.planning;
  text += fmt::format(
      "\nplan      {:.1f} ms; {} programs of {} steps for {} layers sealed in "
      "{:.1f} ms of it",
      1e3 * planning.seconds, planning.sealing.programs, planning.sealing.steps,
      report.layers, planning.sealing.milliseconds);
  const LoadResult& load = report.load;
  text += fmt::format("\nload      {} in {:.3f} s",
                      Human(static_cast<double>(load.bytes)), load.seconds);
  if (load.seconds > 0) {
    text += fmt::format(", {}/s",
                        Human(static_cast<double>(load.bytes) / load.seconds));
  }
  text += '\n';
  if (report.peak_bytes) {
    const auto peak = static_cast<double>(*report.peak_bytes);
    text += fmt::format("peak      {} resident, {:.2f} of the weights\n",
                        Human(peak), peak / static_cast<double>(load.bytes));
  }
  return text + '\n';
}

std::string PrefillText(const BenchReport& report) {
  const Ceilings& ceilings = report.ceilings;
  std::vector<Row> rows = {{"prefill", "tok/s", "ratio", "first token ms",
                            "work", "of compute", "floor ms", "of floor"}};
  for (const PrefillResult& prefill : report.prefill) {
    const double seconds = prefill.seconds.median;
    const double floor =
        FloorSeconds(prefill.costs, ceilings.read_bytes_per_second,
                     ceilings.operations_per_second);
    rows.push_back(
        {fmt::format("  {}", prefill.tokens),
         WithSpread(prefill.tokens_per_second),
         fmt::format("{:.2f}",
                     prefill.tokens_per_second.median /
                         report.prefill.front().tokens_per_second.median),
         WithSpread({1e3 * prefill.seconds.median, 1e3 * prefill.seconds.min,
                     1e3 * prefill.seconds.max}),
         Operations(prefill.costs.Total().operations),
         Share(prefill.costs.Total().operations, seconds,
               ceilings.operations_per_second),
         Number(1e3 * floor), Share(floor, seconds, 1)});
  }
  return Table(rows, 1) + '\n';
}

std::string ExpertsCell(const DecodeResult& decode) {
  if (!decode.experts) return "-";
  return fmt::format("{:.1f} of {:.1f}", decode.experts->met,
                     decode.experts->uniform);
}

std::string DecodeText(const BenchReport& report) {
  const Ceilings& ceilings = report.ceilings;
  std::vector<Row> rows = {{"decode", "tok/s", "ratio", "step ms", "moved",
                            "of read", "ceiling tok/s", "experts", ""}};
  for (const DecodeResult& decode : report.decode) {
    const double seconds = decode.step_seconds.median;
    const double bytes = decode.costs.Total().bytes;
    const std::string reason = decode.VoidReason();
    rows.push_back(
        {fmt::format("  {}", decode.batch),
         WithSpread(decode.tokens_per_second),
         fmt::format("{:.2f}",
                     decode.tokens_per_second.median /
                         report.decode.front().tokens_per_second.median),
         WithSpread({1e3 * decode.step_seconds.median,
                     1e3 * decode.step_seconds.min,
                     1e3 * decode.step_seconds.max}),
         Human(bytes), Share(bytes, seconds, ceilings.read_bytes_per_second),
         Number(static_cast<double>(decode.batch) *
                ceilings.read_bytes_per_second / bytes),
         ExpertsCell(decode), reason.empty() ? "" : "VOID: " + reason});
  }
  return Table(rows, 1) + '\n';
}

// Which of the bytes are for what, a column a batch.
std::string PartsText(const BenchReport& report) {
  std::vector<Row> rows = {{"moved in a step"}};
  for (const DecodeResult& decode : report.decode) {
    rows.front().push_back(fmt::format("batch {}", decode.batch));
  }
  for (size_t i = 0; i < kNumParts; ++i) {
    Row row = {fmt::format("  {}", Name(static_cast<Part>(i)))};
    bool any = false;
    for (const DecodeResult& decode : report.decode) {
      const double bytes = decode.costs.parts[i].bytes;
      any = any || bytes > 0;
      row.push_back(Human(bytes));
    }
    if (any) rows.push_back(std::move(row));
  }
  return Table(rows, 1) + '\n';
}

std::string ProfileText(const Profile& profile, const Ceilings& ceilings) {
  std::string text = fmt::format(
      "profile: {}, {} rows of {}{}\n", Name(profile.kind), profile.rows,
      profile.capacity, profile.unfused ? ", unfused" : "");
  std::vector<Row> rows = {{"  launch", "count", "mean us", "share", "moved",
                            "of read", "work", "of compute"}};
  int64_t count = 0;
  for (const ProfileRow& row : profile.launches) {
    const auto [bytes, operations] = row.cost.value_or(Cost());
    count += row.launches;
    rows.push_back(
        {"  " + row.name, fmt::format("{}", row.launches),
         fmt::format("{:.2f}",
                     1e6 * row.seconds / static_cast<double>(row.launches)),
         Share(row.seconds, profile.seconds, 1), bytes > 0 ? Human(bytes) : "-",
         Share(bytes, row.seconds, ceilings.read_bytes_per_second),
         operations > 0 ? Operations(operations) : "-",
         Share(operations, row.seconds, ceilings.operations_per_second)});
  }
  text += Table(rows, 1) +
          fmt::format(
              "  {} launches one by one: {:.3f} ms, of which timing "
              "them is {:.2f} us each",
              count, 1e3 * profile.seconds, 1e6 * profile.nothing_seconds);
  if (profile.served_seconds) {
    text +=
        fmt::format("; as served: {:.3f} ms", 1e3 * *profile.served_seconds);
  }
  if (profile.block_in_a_row) {
    text += fmt::format(
        ";\n  a routed block, those of all layers in a row: "
        "{:.2f} us",
        1e6 * *profile.block_in_a_row);
  }
  return text + fmt::format("; medians of {} calls\n\n", profile.calls);
}

std::string NotesText(const BenchReport& report) {
  const int64_t steps = report.decode.front().steps;
  std::string text = fmt::format(
      "Medians (least ... most) of {} runs with other prompts, after one that "
      "is not\ncounted; a decode is the {} steps after all have their first "
      "token.\n",
      report.repeat, steps);
  if (report.decode.front().experts) {
    text += fmt::format(
        "Experts: distinct ones a layer, counted in {} steps, of what uniform "
        "routes meet.\n",
        report.decode.front().experts->steps);
  }
  if (!report.device.is_gpu()) {
    text +=
        "A CPU's times change from run to run: compare ratios and shares of "
        "one run.\n";
  }
  return text;
}

}  // namespace

std::string BenchText(const BenchReport& report, const std::string& build) {
  std::string text = WhereText(report, build) + CeilingsText(report) +
                     PrefillText(report) + DecodeText(report) +
                     PartsText(report);
  for (const Profile& profile : report.profiles) {
    text += ProfileText(profile, report.ceilings);
  }
  return text + NotesText(report);
}

}  // namespace signet::evidence
