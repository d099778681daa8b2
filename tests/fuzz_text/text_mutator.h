#pragma once
// Random edits of a program's text: bytes, words, numbers, lines, and moves of
// buffers that may well be legal.

#include <cstdint>
#include <random>
#include <string>

namespace signet::testing {

class TextMutator {
 public:
  explicit TextMutator(uint64_t seed) : random_(seed) {}

  /// One to three edits.
  std::string Mutate(std::string text);

 private:
  struct Range {
    size_t begin;
    size_t size;
  };
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  Range Line(const std::string& text);
  Range Word(const std::string& text);
  Range Number(const std::string& text);
  std::string OtherNumber(const std::string& digits);
  void Edit(std::string& text);
  void MoveBuffer(std::string& text);
  void SwapLines(std::string& text);

  std::mt19937_64 random_;
};

}  // namespace signet::testing
