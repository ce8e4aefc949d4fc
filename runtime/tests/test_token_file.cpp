// TokenFile: every field of a token file is checked on opening. TokenOrder: every epoch is a permutation.

#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/bundle/token_file.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

constexpr int64_t kVocabulary = 100;
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

/// Sequences of 3 and 4 tokens; the second is two packed rows.
TokenTensors good() {
  TokenTensors t;
  t.add({1, 2, 3}, 4);
  t.add({10, 11, 12, 13}, -100);
  t.positions = {0, 1, 2, 0, 1, 0, 1};
  return t;
}

template <typename Change>
std::string error_after(const TempFolder& folder, const Change& change) {
  TokenTensors t = good();
  change(t);
  const std::string path = folder / "changed.tok";
  t.write(path);
  return error_of([&] { TokenFile(path, kVocabulary); });
}

void test_good(const TempFolder& folder) {
  const std::string path = folder / "good.tok";
  good().write(path);
  const TokenFile file(path, kVocabulary);
  CHECK(file.sequences() == 2 && file.longest() == 4 && file.total_tokens() == 7);
  CHECK(file.path() == path);
  CHECK(file.sha256() == sha256_of_file(path, file_size(path)));
  Batch batch;
  file.append(1, batch);
  file.append(0, batch);
  CHECK(batch.tokens == (std::vector<int64_t>{10, 11, 12, 13, 1, 2, 3}));
  CHECK(batch.targets == (std::vector<int64_t>{11, 12, 13, -100, 2, 3, 4}));
  CHECK(batch.positions == (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 2}));
  CHECK(batch.target_count == 6 && batch.size() == 7);
  batch.clear();
  CHECK(batch.target_count == 0 && batch.size() == 0);
}

void test_values(const TempFolder& folder) {
  const auto refuses = [&](const char* part, auto change) { CHECK(contains(error_after(folder, change), part)); };
  CHECK(error_after(folder, [](TokenTensors&) {}).empty());
  CHECK(error_after(folder, [](TokenTensors& t) { t.tokens[0] = 99; }).empty());

  refuses("token 0 is not in the model's vocabulary", [](TokenTensors& t) { t.tokens[0] = 100; });
  refuses("token 6 is not in the model's vocabulary", [](TokenTensors& t) { t.tokens[6] = -1; });
  refuses("token 2 is not in the model's vocabulary", [](TokenTensors& t) { t.targets[2] = 100; });
  refuses("token 2 is not in the model's vocabulary", [](TokenTensors& t) { t.targets[2] = -99; });

  refuses("position 1 at token 0", [](TokenTensors& t) { t.positions[0] = 1; });
  refuses("position 3 at token 2", [](TokenTensors& t) { t.positions[2] = 3; });
  refuses("position -1 at token 5", [](TokenTensors& t) { t.positions[5] = -1; });
  // It goes on from the sequence before: attention would look across.
  refuses("position 3 at token 3", [](TokenTensors& t) { t.positions[3] = 3; });

  const char* ends = "offsets must run from 0 to the number of tokens, 7";
  refuses(ends, [](TokenTensors& t) { t.offsets = {1, 3, 7}; });
  refuses(ends, [](TokenTensors& t) { t.offsets = {0, 3, 6}; });
  refuses(ends, [](TokenTensors& t) { t.offsets = {0, 3, 8}; });
  refuses(ends, [](TokenTensors& t) { t.offsets = {0}; });
  refuses(ends, [](TokenTensors& t) { t.offsets = {}; });
  const char* order = "is empty or out of order";
  refuses(order, [](TokenTensors& t) { t.offsets = {0, 0, 7}; });
  refuses(order, [](TokenTensors& t) { t.offsets = {0, 5, 3, 7}; });
  refuses(order, [](TokenTensors& t) { t.offsets = {0, 9, 7}; });
  // The differences of these offsets overflow.
  refuses(order, [](TokenTensors& t) { t.offsets = {0, 3, kLowest, -1, 7}; });
  refuses(order, [](TokenTensors& t) { t.offsets = {0, kLowest, 7}; });

  const char* lengths = "tokens, targets and positions must have the same length";
  refuses(lengths, [](TokenTensors& t) { t.targets.pop_back(); });
  refuses(lengths, [](TokenTensors& t) { t.positions.push_back(2); });
}

void test_tensors(const TempFolder& folder) {
  const std::string path = folder / "tensors.tok";
  const TokenTensors t = good();
  std::vector<NamedTensor> tensors{{"tokens", "I32", {7}, t.tokens.data()},
                                   {"targets", "I32", {7}, t.targets.data()},
                                   {"positions", "I32", {7}, t.positions.data()},
                                   {"offsets", "I64", {3}, t.offsets.data()}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto changed = tensors;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    write_safetensors(path, changed, {});
    CHECK_ERROR(TokenFile(path, kVocabulary), "tensor " + tensors[i].name + " is missing");
    changed = tensors;
    changed[i].dtype = i == 3 ? "F64" : "F32";
    write_safetensors(path, changed, {});
    CHECK_ERROR(TokenFile(path, kVocabulary), "it must be " + tensors[i].dtype);
  }
  // A tensor of one byte in front: the others no longer lie at multiples of their element size.
  tensors.insert(tensors.begin(), {"odd", "U8", {1}, "x"});
  write_safetensors(path, tensors, {});
  CHECK_ERROR(TokenFile(path, kVocabulary), "aligned");
}

void test_labels(const TempFolder& folder) {
  const std::string path = folder / "labels.tok";
  const TokenTensors t = good();
  const auto opened = [&](const std::vector<uint8_t>& labels, const std::string& rows) {
    write_safetensors(path,
                      {{"tokens", "I32", {7}, t.tokens.data()},
                       {"targets", "I32", {7}, t.targets.data()},
                       {"positions", "I32", {7}, t.positions.data()},
                       {"offsets", "I64", {3}, t.offsets.data()},
                       {"labels", "U8", {static_cast<int64_t>(labels.size())}, labels.data()}},
                      {{"rows", rows}});
    return TokenFile(path, kVocabulary);
  };
  const TokenFile file = opened({1, 1, 1, 0, 0, 1, 1}, "labels");
  CHECK(file.rows() == RowKind::kLabels);
  Batch batch;
  file.append(1, batch);
  CHECK(batch.liked == (std::vector<uint8_t>{0, 0, 1, 1}));
  CHECK_ERROR(opened({1, 1, 1, 0, 0, 1}, "labels"), "labels must have the length of tokens");
  CHECK_ERROR(opened({1, 1, 2, 0, 0, 1, 1}, "labels"), "label 2 of token 2; must be 0 or 1");
  CHECK_ERROR(opened({1, 1, 0, 0, 0, 1, 1}, "labels"), "the label changes at token 2, within a row");
  CHECK_ERROR(opened({1, 1, 1, 0, 0, 1, 1}, "pairs"), "sequence 0 has an odd number of rows");
  CHECK_ERROR(opened({1, 1, 1, 0, 0, 1, 1}, "triples"), "unknown kind of rows \"triples\"; must be pairs or labels");
}

std::vector<int64_t> epoch(TokenOrder& order, int64_t number) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < order.sequences(); ++i) result.push_back(order.at(number * order.sequences() + i));
  return result;
}

void test_order() {
  const int64_t n = 50;
  TokenOrder order(n, 7), again(n, 7), other(n, 8);
  std::vector<int64_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t e = 0; e < 4; ++e) {
    auto sorted = epoch(order, e);
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == all);
    CHECK(epoch(order, e) != epoch(other, e));
    CHECK(epoch(order, e) != epoch(order, e + 1));
  }
  // A place's sequence does not depend on what was asked before: a resumed run starts in the middle.
  CHECK(again.at(3 * n + 17) == epoch(order, 3)[17]);
  CHECK(again.at(4) == epoch(order, 0)[4]);
}

}  // namespace

int main() {
  const TempFolder folder;
  test_good(folder);
  test_values(folder);
  test_labels(folder);
  test_tensors(folder);
  test_order();
  return finish();
}
