#pragma once
// The threads of one CPU rank. The calling thread works too. Waiting is a
// bounded spin, then sleep. Work is claimed task by task, so which thread does
// a task must not change its result. One thread at a time may call ParallelFor,
// and a task may not: both are checked.

#include <cstdint>
#include <memory>

namespace signet::backend::cpu {

/// A borrowed callable: valid during the call it is passed to.
class TaskRef {
 public:
  template <typename F>
  explicit TaskRef(const F& f)
      : object_(&f), call_([](const void* object, int64_t task, int thread) {
          (*static_cast<const F*>(object))(task, thread);
        }) {}
  void operator()(int64_t task, int thread) const {
    call_(object_, task, thread);
  }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int);
};

class ThreadPool {
 public:
  /// `num_threads` >= 1, the caller included; fewer where the system does not
  /// give as many.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  /// Runs task(i, thread) for i in [0, num_tasks), each once, and returns when
  /// all are done; 0 <= thread < num_threads(). Allocates nothing.
  template <typename F>
  void ParallelFor(int64_t num_tasks, const F& task) {
    Run(num_tasks, TaskRef(task));
  }

 private:
  void Run(int64_t num_tasks, TaskRef task);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace signet::backend::cpu
