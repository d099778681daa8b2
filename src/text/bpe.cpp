#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace signet::text {
namespace {

// Up to here, rescanning an array is faster than a heap.
constexpr size_t kMaxShortBytes = 64;

constexpr PairTable::Value kNoMerge = {std::numeric_limits<int32_t>::max(), -1};

uint8_t Byte(char byte) { return static_cast<uint8_t>(byte); }

}  // namespace

Bpe::Bpe(const ByteTokens& byte_tokens, PairTable merges)
    : byte_tokens_(byte_tokens), merges_(std::move(merges)) {}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.size() <= kMaxShortBytes) {
    EncodeShort(piece, ids);
  } else {
    EncodeLong(piece, ids);
  }
}

PairTable::Value Bpe::MergeOf(int32_t left, int32_t right) const {
  const PairTable::Value* merge = merges_.Find(left, right);
  return merge == nullptr ? kNoMerge : *merge;
}

void Bpe::EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  int32_t tokens[kMaxShortBytes];
  // The merge of tokens i and i + 1; none at the last.
  PairTable::Value merges[kMaxShortBytes];
  size_t size = piece.size();
  for (size_t i = 0; i < size; ++i) tokens[i] = byte_tokens_[Byte(piece[i])];
  const auto update = [&](size_t i) {
    merges[i] = i + 1 < size ? MergeOf(tokens[i], tokens[i + 1]) : kNoMerge;
  };
  for (size_t i = 0; i < size; ++i) update(i);
  while (size > 0) {
    const auto* best = std::ranges::min_element(merges, merges + size, {},
                                                &PairTable::Value::first);
    if (best->first == kNoMerge.first) break;
    const size_t at = static_cast<size_t>(best - merges);
    tokens[at] = best->second;
    std::copy(tokens + at + 2, tokens + size, tokens + at + 1);
    std::copy(merges + at + 2, merges + size, merges + at + 1);
    --size;
    update(at);
    if (at > 0) update(at - 1);
  }
  ids->insert(ids->end(), tokens, tokens + size);
}

void Bpe::EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  constexpr int32_t kNone = -1;
  struct Symbol {
    int32_t token;  // kNone: merged into its left neighbour
    int32_t left;   // the neighbours' positions, or kNone
    int32_t right;
    PairTable::Value merge;  // with the right neighbour
  };
  const int32_t size = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (int32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_tokens_[Byte(piece[i])], i - 1,
                  i + 1 < size ? i + 1 : kNone, kNoMerge};
  }
  // Rank above position in one number, least first. An entry is stale when the
  // merge at its position is another by now; ranks are distinct.
  std::vector<uint64_t> entries;
  entries.reserve(piece.size());
  const auto update = [&](int32_t at, auto&& queue) {
    Symbol& symbol = symbols[at];
    symbol.merge = symbol.right == kNone
                       ? kNoMerge
                       : MergeOf(symbol.token, symbols[symbol.right].token);
    if (symbol.merge.first == kNoMerge.first) return;
    queue(uint64_t{static_cast<uint32_t>(symbol.merge.first)} << 32 |
          static_cast<uint32_t>(at));
  };
  for (int32_t i = 0; i < size; ++i) {
    update(i, [&](uint64_t entry) { entries.push_back(entry); });
  }
  std::priority_queue heap(std::greater<>{}, std::move(entries));
  const auto push = [&](uint64_t entry) { heap.push(entry); };
  while (!heap.empty()) {
    const int32_t rank = static_cast<int32_t>(heap.top() >> 32);
    const int32_t at = static_cast<int32_t>(heap.top());
    heap.pop();
    Symbol& left = symbols[at];
    if (left.merge.first != rank) continue;
    Symbol& right = symbols[left.right];
    left.token = left.merge.second;
    left.right = right.right;
    right = {kNone, kNone, kNone, kNoMerge};
    if (left.right != kNone) symbols[left.right].left = at;
    update(at, push);
    if (left.left != kNone) update(left.left, push);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.token != kNone) ids->push_back(symbol.token);
  }
}

}  // namespace signet::text
