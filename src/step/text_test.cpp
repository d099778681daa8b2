// The text form: every field survives, and nothing else is read.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "step/draft_testing.h"
#include "step/program.h"
#include "step/text_format.h"

namespace signet::step {
namespace {

constexpr uint64_t kEpoch = 77;

// Gives every field of every step kind a value of its own.
class Filler {
 public:
  explicit Filler(uint64_t seed, int num_buffers)
      : random_(seed), num_buffers_(num_buffers) {}
  void Read(std::string_view, BufferId& id) { id = Any(); }
  void Write(std::string_view, BufferId& id) { id = Any(); }
  void Update(std::string_view, BufferId& id) { id = Any(); }
  void ReadOptional(std::string_view, std::optional<BufferId>& id) {
    if (random_() % 2 == 0) id = Any();
  }
  void WriteOptional(std::string_view name, std::optional<BufferId>& id) {
    ReadOptional(name, id);
  }
  template <typename T>
  void Attribute(std::string_view, T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      // Any finite bits, so that the shortest text is put to the test.
      do {
        const uint64_t bits = random_();
        std::memcpy(&value, &bits, sizeof(value));
      } while (!(value - value == 0));
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(random_() % 2);
    } else {
      Set(value);
    }
  }
  uint64_t Next() { return random_(); }

 private:
  void Set(int64_t& value) { value = static_cast<int64_t>(random_()); }
  void Set(Rank& value) { value = Rank(static_cast<int32_t>(random_())); }
  void Set(ScheduleRow& value) {
    value = ScheduleRow(static_cast<int32_t>(random_()));
  }
  void Set(GroupRef& value) {
    value.axis = topology::kAllAxes[random_() % topology::kAllAxes.size()];
    value.ranks.clear();
    for (uint64_t i = random_() % 4; i > 0; --i) {
      value.ranks.push_back(Rank(static_cast<int32_t>(random_() % 100)));
    }
    value.epoch = kEpoch;
  }
  BufferId Any() {
    // Sometimes outside the program.
    return BufferId(static_cast<int32_t>(random_() % (num_buffers_ + 1)) - 1);
  }
  std::mt19937_64 random_;
  int num_buffers_;
};

template <size_t kind = 0>
void AddEveryKind(ProgramDraft& draft, Filler& filler) {
  if constexpr (kind < std::variant_size_v<Step>) {
    std::variant_alternative_t<kind, Step> step;
    step.Fields(step, filler);
    draft.steps.emplace_back(std::move(step));
    AddEveryKind<kind + 1>(draft, filler);
  }
}

ProgramDraft AnyDraft(uint64_t seed) {
  constexpr int kBuffers = 14;
  Filler filler(seed, kBuffers);
  ProgramDraft draft;
  draft.contract = Digest(filler.Next(), filler.Next());
  draft.rank = Rank(static_cast<int32_t>(filler.Next() % 100));
  draft.shape.rows = static_cast<int64_t>(filler.Next() % 1000);
  if (filler.Next() % 2 == 0) {
    draft.shape.kind = plan::ShapeKind::kPrefill;
    draft.shape.logits = plan::LogitsOf::kLastRow;
  }
  if (filler.Next() % 2 == 0) {
    draft.recipe = {.kind = Recipe::Kind::kRoutedBlock,
                    .layer = LayerId(static_cast<int32_t>(filler.Next() % 9)),
                    .router = RouterKind::kPrecomputed};
  }
  for (const MemoryClass arena : kAllMemoryClasses) {
    if (filler.Next() % 2 == 0) draft.arena_bytes[arena] = Bytes(filler.Next());
  }
  for (int i = 0; i < kBuffers; ++i) {
    BufferDecl buffer{.name = "b" + std::to_string(i)};
    buffer.kind = static_cast<BufferKind>(filler.Next() % 7);
    buffer.dtype = static_cast<tensor::DType>(filler.Next() % 4);
    const std::array<int64_t, 4> dims = {static_cast<int64_t>(filler.Next()), 0,
                                         -3, 12};
    buffer.shape =
        tensor::Shape(std::span<const int64_t>(dims.data(), filler.Next() % 5));
    buffer.basis = tensor::kAllBases[filler.Next() % tensor::kAllBases.size()];
    buffer.part = {static_cast<PartKind>(filler.Next() % 3),
                   topology::kAllAxes[filler.Next() % 3]};
    buffer.rank = Rank(static_cast<int32_t>(filler.Next()));
    buffer.arena = kAllMemoryClasses[filler.Next() % kAllMemoryClasses.size()];
    buffer.offset_bytes = filler.Next();
    buffer.size = Bytes(filler.Next());
    if (filler.Next() % 2 == 0) {
      buffer.weight.emplace();
      if (filler.Next() % 2 == 0) buffer.weight->weight.emplace(3);
      if (filler.Next() % 2 == 0) buffer.weight->expert_layer.emplace(-12);
      if (filler.Next() % 2 == 0) buffer.weight->part = ExpertPart::kDown;
    }
    buffer.io = static_cast<IoRole>(i);  // each role once
    if (filler.Next() % 2 == 0) buffer.io.reset();
    draft.buffers.Push(buffer);
  }
  draft.live = BufferId(static_cast<int32_t>(filler.Next() % kBuffers));
  AddEveryKind(draft, filler);
  return draft;
}

// Compares two steps field by field.
struct FieldList {
  std::vector<std::string> fields;
  void Read(std::string_view n, BufferId id) { Add(n, id.value()); }
  void Write(std::string_view n, BufferId id) { Add(n, id.value()); }
  void Update(std::string_view n, BufferId id) { Add(n, id.value()); }
  void ReadOptional(std::string_view n, std::optional<BufferId> id) {
    Add(n, id ? id->value() : -99);
  }
  void WriteOptional(std::string_view n, std::optional<BufferId> id) {
    ReadOptional(n, id);
  }
  template <typename T>
  void Attribute(std::string_view n, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(value));
      Add(n, bits);
    } else if constexpr (std::is_enum_v<T>) {
      Add(n, static_cast<int>(value));
    } else if constexpr (std::is_same_v<T, GroupRef>) {
      Add(n, static_cast<int>(value.axis));
      Add(n, value.epoch);
      for (const Rank rank : value.ranks) Add(n, rank.value());
    } else if constexpr (std::is_integral_v<T>) {
      Add(n, value);
    } else {
      Add(n, value.value());
    }
  }
  template <typename T>
  void Add(std::string_view name, T value) {
    fields.push_back(std::string(name) + "=" + std::to_string(value));
  }
};

std::vector<std::string> FieldsOf(const Step& step) {
  FieldList list;
  list.fields.emplace_back(KindName(step));
  std::visit([&](const auto& s) { s.Fields(s, list); }, step);
  return list.fields;
}

void ExpectEqual(const ProgramDraft& a, const ProgramDraft& b) {
  EXPECT_EQ(a.contract, b.contract);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.recipe, b.recipe);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.live, b.live);
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    const BufferId id(static_cast<int32_t>(i));
    EXPECT_EQ(a.buffers[id], b.buffers[id]) << a.buffers[id].name;
  }
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(FieldsOf(a.steps[i]), FieldsOf(b.steps[i]));
  }
}

TEST(ProgramText, P6_EveryFieldOfEveryKindSurvives) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const ProgramDraft draft = AnyDraft(seed);
    const std::string text = ToText(draft);
    const Result<ProgramDraft> parsed = ParseProgram(text, kEpoch);
    ASSERT_TRUE(parsed.has_value()) << Describe(parsed.error()) << "\n" << text;
    ExpectEqual(draft, *parsed);
    EXPECT_EQ(ToText(*parsed), text);
  }
}

template <typename... Kinds>
std::vector<std::string_view> KindNames(std::variant<Kinds...>*) {
  return {Kinds::kName...};
}

// The words are part of every program id.
TEST(ProgramText, G1_TheKindsAreCalledSo) {
  const std::vector<std::string_view> want = {"embed",
                                              "norm",
                                              "round",
                                              "projection",
                                              "qk_norm_rope",
                                              "kv_append",
                                              "attention",
                                              "conv",
                                              "delta_rule",
                                              "gated_norm",
                                              "activation",
                                              "residual_add",
                                              "gated_add",
                                              "moe_route",
                                              "indexed_moe_gemv",
                                              "moe_scatter",
                                              "grouped_moe_gemm",
                                              "moe_gate_up_unscatter",
                                              "moe_activation",
                                              "moe_combine",
                                              "all_reduce",
                                              "gather",
                                              "broadcast",
                                              "band_transfer",
                                              "logits",
                                              "sample"};
  EXPECT_EQ(KindNames(static_cast<Step*>(nullptr)), want);
}

TEST(ProgramText, P6_EpochIsNotInTheText) {
  const ProgramDraft draft = AnyDraft(1);
  const std::string text = ToText(draft);
  const ProgramDraft other = *ParseProgram(text, kEpoch + 1);
  EXPECT_EQ(ToText(other), text);
  for (const Step& step : other.steps) {
    if (const auto* reduce = std::get_if<AllReduce>(&step)) {
      EXPECT_EQ(reduce->group.epoch, kEpoch + 1);
    }
  }
}

TEST(ProgramText, NonFiniteAttributesSurvive) {
  ProgramDraft draft = AnyDraft(2);
  auto& rope = testing::Nth<QkNormRope>(draft);
  rope.theta = std::numeric_limits<double>::infinity();
  rope.eps = -0.0f;
  const std::string text = ToText(draft);
  ExpectEqual(draft, *ParseProgram(text, kEpoch));
}

const char kSmall[] =
    "signet-program 1\n"
    "contract 0123456789abcdef0123456789abcdef\n"
    "rank 0\n"
    "recipe model\n"
    "shape decode rows=1 logits=all\n"
    "arena workspace 128\n"
    "buffer x kind=work dtype=f32 shape=[1,16] basis=natural part=whole rank=0 "
    "arena=workspace offset=0 bytes=64\n"
    "buffer y kind=work dtype=f32 shape=[1,16] basis=natural part=partial(ep) "
    "rank=0 arena=workspace offset=64 bytes=64\n"
    "live x\n"
    "norm x=x weight=y out=y eps=1e-06 offset=1\n"
    "all_reduce x=x out=y group=ep:0 row=0 elements=16\n";

TEST(ProgramText, TheFormIsAsDocumented) {
  const Result<ProgramDraft> parsed = ParseProgram(kSmall, kEpoch);
  ASSERT_TRUE(parsed.has_value()) << Describe(parsed.error());
  EXPECT_EQ(ToText(*parsed), kSmall);
  EXPECT_EQ(parsed->buffers.size(), 2u);
  EXPECT_EQ(std::get<Norm>(parsed->steps[0]).eps, 1e-06f);
}

struct Fault {
  std::string from;
  std::string to;
  std::string where;
  std::string got;
};

TEST(ProgramText, RefusalsNameLineAndToken) {
  const Fault faults[] = {
      {"signet-program 1", "signet-program 2", "line 1", "2"},
      {"contract 01", "contract 0g", "line 2",
       "0g23456789abcdef0123456789abcdef"},
      {"contract 01", "contract 1", "line 2",
       "123456789abcdef0123456789abcdef"},
      {"rank 0\n", "rank 0 \n", "line 3", "rank 0 "},
      {"rank 0\n", "rank 4294967296\n", "line 3", "4294967296"},
      {"rank 0\n", "rank 00\n", "line 3", "rank 00"},
      {"recipe model", "recipe half", "line 4", "half"},
      {"shape decode", "shape encode", "line 5", "encode"},
      {"logits=all", "logits=some", "line 5", "some"},
      {"rows=1 ", "", "line 5", "logits=all"},
      {"arena workspace 128", "arena attic 128", "line 6", "attic"},
      {"arena workspace 128", "arena workspace -1", "line 6", "-1"},
      {"buffer x ", "buffer X/ ", "line 7", "X/"},
      {"buffer y ", "buffer x ", "line 8", "x"},
      {"shape=[1,16]", "shape=[1,16", "line 7", "[1,16"},
      {"shape=[1,16]", "shape=[1,1,1,1,16]", "line 7", "[1,1,1,1,16]"},
      {"part=whole", "part=partial", "line 7", "partial"},
      {"part=whole", "part=whole(ep)", "line 7", "whole(ep)"},
      {"part=partial(ep)", "part=partial(xp)", "line 8", "partial(xp)"},
      {"bytes=64\nbuffer", "bytes=64 io=nothing\nbuffer", "line 7", "nothing"},
      {"bytes=64\nbuffer", "bytes=64 weight=w\nbuffer", "line 7", "w"},
      {"bytes=64\nbuffer", "bytes=64 weight=e3:up\nbuffer", "line 7", "e3:up"},
      {"live x", "live z", "line 9", "z"},
      {"live x", "live %x", "line 9", "%x"},
      {"norm x=x", "gnome x=x", "line 10", "gnome"},
      {"norm x=x", "norm z=x", "line 10", "z=x"},
      {"norm x=x", "norm x=q", "line 10", "q"},
      {"norm x=x", "norm x=%0", "line 10",
       "norm x=%0 weight=y out=y eps=1e-06 offset=1"},
      {"eps=1e-06", "eps=0.000001", "line 10",
       "norm x=x weight=y out=y eps=0.000001 offset=1"},
      {"offset=1\n", "offset=1 more\n", "line 10", "more"},
      {"group=ep:0", "group=ep", "line 11", "ep"},
      {"group=ep:0", "group=ep:0,a", "line 11", "ep:0,a"},
      {"elements=16\n", "elements=16", "line 10",
       "all_reduce x=x out=y group=ep:0 row=0 elements=16"},
  };
  for (const Fault& fault : faults) {
    std::string text = kSmall;
    const size_t at = text.find(fault.from);
    ASSERT_NE(at, text.npos) << fault.from;
    text.replace(at, fault.from.size(), fault.to);
    const Result<ProgramDraft> parsed = ParseProgram(text, kEpoch);
    ASSERT_FALSE(parsed.has_value()) << fault.to;
    const Rejection& rejection =
        std::get<Rejections>(parsed.error()).list().front();
    EXPECT_EQ(rejection.code, RejectionCode::kProgramTextInvalid);
    EXPECT_EQ(rejection.where, fault.where) << fault.to;
    EXPECT_EQ(rejection.got, fault.got.substr(0, 64)) << fault.to;
  }
}

TEST(ProgramText, EveryPrefixIsRefusedOrWhole) {
  const std::string text = kSmall;
  for (size_t size = 0; size < text.size(); ++size) {
    const Result<ProgramDraft> parsed =
        ParseProgram(std::string_view(text).substr(0, size), kEpoch);
    if (parsed) {
      EXPECT_EQ(ToText(*parsed), text.substr(0, size));
    }
  }
}

TEST(ProgramText, SizesAreBounded) {
  std::string text(kSmall);
  text.append(text_format::kMaxTextBytes, 'x');
  const Result<ProgramDraft> parsed = ParseProgram(text, kEpoch);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_NE(Describe(parsed.error()).find("too long"), std::string::npos);
}

TEST(ProgramText, StepsAreBounded) {
  std::string text = kSmall;
  text.resize(text.find("norm x=x"));
  const std::string step = "logits x=x weight=x out=x which=all\n";
  for (size_t i = 0; i <= text_format::kMaxSteps; ++i) text += step;
  const Result<ProgramDraft> parsed = ParseProgram(text, kEpoch);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_NE(Describe(parsed.error()).find("fewer steps"), std::string::npos);
  text.resize(text.size() - step.size());
  EXPECT_TRUE(ParseProgram(text, kEpoch).has_value());
}

}  // namespace
}  // namespace signet::step
