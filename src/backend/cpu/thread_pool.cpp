#include "backend/cpu/thread_pool.h"

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/check.h"

namespace signet::backend::cpu {
namespace {

// About 100 microseconds: longer than the gap between two launches of a step,
// far shorter than a pause a person would notice as heat.
constexpr int kSpins = 2000;
constexpr size_t kCacheLine = 64;

inline void Pause() { __builtin_ia32_pause(); }

}  // namespace

// A run is open from its publication until the driver has no task left to
// claim. A worker joins an open run by counting itself into `gate`, so a worker
// that is late (asleep, or not scheduled) never holds up the driver: a closed
// run needs only those who joined to leave.
struct ThreadPool::State {
  static constexpr int32_t kOpen = 1 << 30;

  // Incremented by each run; workers spin and sleep on it.
  alignas(kCacheLine) std::atomic<int32_t> signal = 0;
  // kOpen while a run may be joined, plus the workers in it.
  alignas(kCacheLine) std::atomic<int32_t> gate = 0;
  alignas(kCacheLine) std::atomic<int64_t> next_task = 0;
  // Written only while the gate is 0, read only by those counted in it.
  alignas(kCacheLine) const TaskRef* task = nullptr;
  int64_t num_tasks = 0;
  std::atomic<bool> stop = false;
  std::atomic<bool> running = false;
  std::vector<std::thread> workers;

  void Drain(int thread) {
    const int64_t count = num_tasks;
    const TaskRef& run = *task;
    for (;;) {
      const int64_t i = next_task.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      run(i, thread);
    }
  }

  bool Join() {
    int32_t seen = gate.load(std::memory_order_relaxed);
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  void Leave() {
    if (gate.fetch_sub(1, std::memory_order_acq_rel) == 1) gate.notify_one();
  }

  void Work(int thread) {
    int32_t last = 0;
    for (;;) {
      int32_t now = signal.load(std::memory_order_acquire);
      for (int spin = 0; now == last && spin < kSpins; ++spin) {
        Pause();
        now = signal.load(std::memory_order_acquire);
      }
      if (now == last) {
        signal.wait(last, std::memory_order_acquire);
        continue;
      }
      last = now;
      if (stop.load(std::memory_order_acquire)) return;
      if (!Join()) continue;
      Drain(thread);
      Leave();
    }
  }

  void Signal() {
    signal.fetch_add(1, std::memory_order_seq_cst);
    signal.notify_all();
  }

  // Returns when every worker that joined has left.
  void Close() {
    int32_t seen = gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    for (int spin = 0; seen != 0 && spin < kSpins; ++spin) {
      Pause();
      seen = gate.load(std::memory_order_acquire);
    }
    while (seen != 0) {
      gate.wait(seen, std::memory_order_acquire);
      seen = gate.load(std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  SIGNET_CHECK(num_threads >= 1);
  state_->workers.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      state_->workers.emplace_back(
          [state = state_.get(), thread] { state->Work(thread); });
    }
  } catch (const std::exception&) {
    // As many as the system gives: fewer threads change the time, no result.
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->Signal();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::Run(int64_t num_tasks, TaskRef task) {
  State& state = *state_;
  SIGNET_CHECK(!state.running.exchange(true, std::memory_order_acquire));
  if (num_tasks <= 1 || state.workers.empty()) {
    for (int64_t i = 0; i < num_tasks; ++i) task(i, 0);
  } else {
    state.task = &task;
    state.num_tasks = num_tasks;
    state.next_task.store(0, std::memory_order_relaxed);
    state.gate.store(State::kOpen, std::memory_order_release);
    state.Signal();
    state.Drain(0);
    state.Close();
  }
  state.running.store(false, std::memory_order_release);
}

}  // namespace signet::backend::cpu
