// Sampling: every limit leaves what it should, and frequencies follow the probabilities.

#include <cmath>
#include <map>

#include "runtime/generate/sampling.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

// Probabilities 0.5, 0.05, 0.25, 0.2 at temperature 1.
const std::vector<float> kLogits = {std::log(0.5f), std::log(0.05f), std::log(0.25f), std::log(0.2f)};

std::map<int64_t, double> shares(const GenerateConfig& config, const std::vector<int64_t>& recent = {}) {
  constexpr int kDraws = 20000;
  std::map<int64_t, double> shares;
  Random random(1, 0);
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> logits = kLogits;
    shares[sample(logits.data(), logits.size(), recent, config, random)] += 1.0 / kDraws;
  }
  return shares;
}

void check_shares(const GenerateConfig& config, const std::map<int64_t, double>& expected,
                  const std::vector<int64_t>& recent = {}) {
  const auto found = shares(config, recent);
  CHECK(found.size() == expected.size());
  for (const auto& [token, share] : expected) CHECK_NEAR(found.count(token) ? found.at(token) : 0, share, 0.015);
}

}  // namespace

int main() {
  GenerateConfig config;
  check_shares(config, {{0, 1}});  // temp 0
  config.temp = 1;
  check_shares(config, {{0, 0.5}, {1, 0.05}, {2, 0.25}, {3, 0.2}});
  config.temp = 0.5;  // squares
  check_shares(config, {{0, 0.25 / 0.355}, {1, 0.0025 / 0.355}, {2, 0.0625 / 0.355}, {3, 0.04 / 0.355}});
  config.temp = 1;
  config.top_k = 2;
  check_shares(config, {{0, 2. / 3}, {2, 1. / 3}});
  config.top_k = 0;
  config.top_p = 0.74;  // which the second reaches
  check_shares(config, {{0, 2. / 3}, {2, 1. / 3}});
  config.top_p = 0.76;
  check_shares(config, {{0, 0.5 / 0.95}, {2, 0.25 / 0.95}, {3, 0.2 / 0.95}});
  config.top_p = 0.01;  // never none
  check_shares(config, {{0, 1}});
  config.top_p = 1;
  config.min_p = 0.45;
  check_shares(config, {{0, 2. / 3}, {2, 1. / 3}});
  config.min_p = 0;

  // Of many tokens, whose order is needed beyond the first few hundred: 1,000 equally likely ones, and 1,000 unlikely.
  {
    GenerateConfig many;
    many.temp = 1;
    many.top_p = 0.5;
    std::vector<float> logits(2000, -20.F);
    for (size_t i = 0; i < 1000; ++i) logits[i * 2] = 1.F;
    std::map<int64_t, int> drawn;
    Random random(1, 0);
    for (int i = 0; i < 8000; ++i) {
      std::vector<float> copy = logits;
      ++drawn[sample(copy.data(), copy.size(), {}, many, random)];
    }
    CHECK(drawn.size() >= 499 && drawn.size() <= 501);
    CHECK(drawn.rbegin()->first <= 500 * 2);  // of equals, the first ones
    many.top_p = 1;
    many.min_p = 0.9;
    for (int i = 0; i < 14000; ++i) {
      std::vector<float> copy = logits;
      ++drawn[sample(copy.data(), copy.size(), {}, many, random)];
    }
    CHECK(drawn.size() == 1000);
  }

  // Logits are logarithms below 0 here, so the penalty multiplies: 0.5 becomes 0.25.
  config.repetition_penalty = 2;
  check_shares(config, {{0, 1. / 3}, {1, 0.05 / 0.75}, {2, 1. / 3}, {3, 0.2 / 0.75}}, {0});
  config.repetition_context_size = 1;
  check_shares(config, {{0, 0.5 / 0.8125}, {1, 0.05 / 0.8125}, {2, 0.0625 / 0.8125}, {3, 0.2 / 0.8125}}, {0, 2});
  config.temp = 0;
  std::vector<float> positive = {2, 1.5};
  Random random(1, 0);
  CHECK(sample(positive.data(), positive.size(), {0}, config, random) == 1);

  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const double temp : {0.0, 1.0}) {
      config.temp = temp;
      std::vector<float> logits = bad < 0 ? std::vector<float>{bad, bad} : std::vector<float>{1, bad, 2};
      CHECK_ERROR(sample(logits.data(), logits.size(), {0}, config, random), "the model's output is not finite");
    }
  }

  CHECK_ERROR(make_generate_config({{"top_p", "0"}}), "top_p 0: must be above 0 and at most 1");
  CHECK_ERROR(make_generate_config({{"min_p", "1.1"}}), "min_p 1.1: must be from 0 to 1");
  CHECK_ERROR(make_generate_config({{"temp", "-1"}}), "temp -1: must not be negative");
  CHECK_ERROR(make_generate_config({{"max_tokens", "0"}}), "max_tokens 0: must be at least 1");
  CHECK_ERROR(make_generate_config({{"repetition_penalty", "0"}}), "repetition_penalty 0: must be positive");
  // Sampling computes in float32, where these would be 0 or infinite.
  const std::string range = ": must be 0 or from 1.2e-38 to 3.4e+38";
  for (const char* temp : {"1e-46", "1e-40", "1e300"}) {
    CHECK_ERROR(make_generate_config({{"temp", temp}}), range);
  }
  for (const char* penalty : {"1e-40", "1e300"}) {
    CHECK_ERROR(make_generate_config({{"repetition_penalty", penalty}}), "must be from 1.2e-38 to 3.4e+38");
  }
  CHECK(make_generate_config({{"temp", "1e-37"}, {"repetition_penalty", "1e38"}}).temp == 1e-37);
  return finish();
}
