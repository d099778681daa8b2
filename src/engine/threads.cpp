#include "engine/threads.h"

#include "backend/cpu/processors.h"

namespace signet {

int WorkingThreads(int wanted) {
  return wanted > 0 ? wanted : backend::cpu::UsableProcessors();
}

}  // namespace signet
