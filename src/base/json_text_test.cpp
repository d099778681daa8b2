#include "base/json_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/json_tree.h"

namespace signet {
namespace {

// A container where a scalar is meant does not compile.
static_assert(JsonScalar<bool> && JsonScalar<uint64_t> && JsonScalar<float>);
static_assert(JsonScalar<std::string> && JsonScalar<char[3]>);
static_assert(JsonScalar<const char*> && JsonScalar<std::nullptr_t>);
static_assert(!JsonScalar<nlohmann::json> && !JsonScalar<JsonTree>);
static_assert(!JsonScalar<nlohmann::ordered_json>);
static_assert(!JsonScalar<std::vector<int>> && !JsonScalar<int*>);
static_assert(!JsonScalar<std::map<std::string, int>>);

template <typename Fill>
std::string TextOf(const Fill& fill) {
  JsonText json;
  fill(json);
  return std::move(json).Take();
}

TEST(JsonText, WritesScalarsAsTheLibraryDoes) {
  const std::string text = TextOf([](JsonText& json) {
    json.Array([&] {
      json.Value(-1);
      json.Value(std::numeric_limits<uint64_t>::max());
      json.Value(true);
      json.Value(nullptr);
      json.Value(10000.0);
      json.Value(1e-6f);
      json.Value(std::numeric_limits<double>::quiet_NaN());
      json.Value("text");
      json.Value(std::string("more"));
      json.Value(std::string_view("view"));
    });
  });
  EXPECT_EQ(text,
            "[-1,18446744073709551615,true,null,10000.0,"
            "9.999999974752427e-07,null,\"text\",\"more\",\"view\"]");
}

TEST(JsonText, EscapesTextAndKeys) {
  const std::string text = TextOf([](JsonText& json) {
    json.Object([&] {
      json.Field("a\"b", "\\ \n \x01 \x7f é");
      json.Field("nul", std::string_view("x\0y", 3));
    });
  });
  EXPECT_EQ(text,
            "{\"a\\\"b\":\"\\\\ \\n \\u0001 \x7f é\",\"nul\":\"x\\u0000y\"}");
}

TEST(JsonText, ReplacesWhatIsNotUtf8) {
  const std::string text = TextOf([](JsonText& json) {
    json.Object([&] { json.Field("k\xff", "a\xc3(b\xe2\x82"); });
  });
  EXPECT_EQ(text, "{\"k\uFFFD\":\"a\uFFFD(b\uFFFD\"}");
}

TEST(JsonText, KeepsTheOrderOfKeysAndNests) {
  const std::string text = TextOf([](JsonText& json) {
    json.Object([&] {
      json.Field("z", 1);
      json.Array("list", [&] {
        json.Object([&] { json.Field("first", 2); });
        json.Array([&] { json.Value(3); });
        json.Value("{");
        json.Value("[:");
        json.Object([] {});
      });
      json.Object("inner", [&] {
        json.Object("more", [&] { json.Field("x", ","); });
        json.Field("y", 4);
      });
      json.Field("a", 5);
    });
  });
  EXPECT_EQ(text, R"({"z":1,"list":[{"first":2},[3],"{","[:",{}],)"
                  R"("inner":{"more":{"x":","},"y":4},"a":5})");
}

TEST(JsonText, WritesEmptyContainers) {
  const std::string text = TextOf([](JsonText& json) {
    json.Array([&] {
      json.Array([] {});
      json.Object([&] {
        json.Object("object", [] {});
        json.Array("list", [] {});
      });
    });
  });
  EXPECT_EQ(text, R"([[],{"object":{},"list":[]}])");
}

TEST(JsonText, WritesNullForWhatIsNotThere) {
  const std::string text = TextOf([](JsonText& json) {
    json.Object([&] {
      json.Field("unset", std::optional<std::string>());
      json.Field("set", std::optional<int>(0));
    });
  });
  EXPECT_EQ(text, R"({"unset":null,"set":0})");
}

TEST(JsonText, MayBeOneScalar) {
  EXPECT_EQ(TextOf([](JsonText& json) { json.Value("x"); }), "\"x\"");
}

}  // namespace
}  // namespace signet
