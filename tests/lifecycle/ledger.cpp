#include "lifecycle/ledger.h"

#include <memory>
#include <span>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "backend/forwarding_device.h"

namespace signet::testing {

class RankHook final : public backend::FaultHook {
 public:
  RankHook(Ledger* ledger, int rank) : ledger_(ledger), rank_(rank) {}
  bool ShouldFail(backend::FaultPoint point) override {
    return ledger_->ShouldFail(rank_, point);
  }

 private:
  Ledger* ledger_;
  int rank_;
};

// A CPU device that tells the ledger what it had given back when it goes.
class WatchedDevice final : public backend::ForwardingDevice {
 public:
  WatchedDevice(Ledger* ledger, int ordinal,
                std::unique_ptr<backend::Device> inner)
      : ForwardingDevice(*inner),
        ledger_(ledger),
        hook_(ledger, ordinal),
        inner_(std::move(inner)) {
    if (ledger->watch_) inner_->set_fault_hook(&hook_);
    const std::lock_guard lock(ledger->mutex_);
    ++ledger->live_devices_;
  }
  ~WatchedDevice() override { ledger_->Gone(inner_->counts()); }

 private:
  Ledger* ledger_;
  RankHook hook_;
  std::unique_ptr<backend::Device> inner_;
};

DeviceFactory Ledger::Factory() {
  return [this](const topology::DeviceIdentity& identity,
                int num_threads) -> Result<std::unique_ptr<backend::Device>> {
    return std::make_unique<WatchedDevice>(
        this, identity.ordinal,
        backend::cpu::MakeCpuDevice(identity.ordinal, num_threads));
  };
}

void Ledger::Count() { FailAt(-1, -1); }

void Ledger::FailAt(int rank, int64_t index) {
  for (auto& passed : passed_) passed.store(0);
  for (auto& kind : kinds_) kind.store(0);
  struck_.store(-1);
  armed_rank_ = rank;
  armed_index_ = index;
  act_ = nullptr;
}

void Ledger::CallAt(int rank, int64_t index, std::function<void()> act) {
  FailAt(rank, index);
  act_ = std::move(act);
}

bool Ledger::ShouldFail(int rank, backend::FaultPoint point) {
  const int64_t index = passed_[Index(rank)].fetch_add(1);
  kinds_[static_cast<size_t>(point)].fetch_add(1);
  if (rank != armed_rank_ || index != armed_index_) return false;
  struck_.store(static_cast<int>(point));
  if (!act_) return true;
  act_();
  return false;
}

std::string Ledger::struck() const {
  const int point = struck_.load();
  if (point < 0) return {};
  return std::string(Name(static_cast<backend::FaultPoint>(point)));
}

std::string Ledger::Kinds() const {
  std::string text;
  for (const backend::FaultPoint point : backend::kAllFaultPoints) {
    const int64_t count = kinds_[static_cast<size_t>(point)].load();
    if (count == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::string(Name(point)) + " " + std::to_string(count);
  }
  return text.empty() ? "none" : text;
}

void Ledger::Gone(const backend::AllocationCounts& counts) {
  const std::lock_guard lock(mutex_);
  --live_devices_;
  allocations_ += counts.allocations + counts.maps;
  balanced_ = balanced_ && counts.allocations == counts.frees &&
              counts.maps == counts.unmaps && counts.foreign_frees == 0;
}

int Ledger::live_devices() const {
  const std::lock_guard lock(mutex_);
  return live_devices_;
}

bool Ledger::balanced() const {
  const std::lock_guard lock(mutex_);
  return balanced_;
}

uint64_t Ledger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

}  // namespace signet::testing
