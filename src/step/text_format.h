#pragma once
// The words of the text form, shared by printer and parser.
//
//   signet-program 1
//   contract <32 hexadecimal digits>
//   rank 0
//   recipe model | recipe routed_block layer=3 router=precomputed
//   shape decode rows=1 logits=all
//   arena workspace 4096                      one a memory class
//   buffer <name> kind=.. dtype=.. ...        one a buffer, in id order
//   live <buffer>
//   <kind> <field>=<value> ...                one a step, in order
//
// A buffer is written by its name; an id outside the program as `%<id>`. A
// missing optional field is left out. Numbers are the shortest text that reads
// back to the same value. A group is `ep:0,1`; its epoch is not part of the
// text.

#include <cstddef>
#include <string_view>

namespace signet::step::text_format {

inline constexpr std::string_view kMagic = "signet-program";
inline constexpr std::string_view kVersion = "1";
inline constexpr std::string_view kRecipeModel = "model";
inline constexpr std::string_view kRecipeRoutedBlock = "routed_block";

// A text of this length holds fewer than 2^20 buffers.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
inline constexpr size_t kMaxSteps = size_t{1} << 20;

}  // namespace signet::step::text_format
